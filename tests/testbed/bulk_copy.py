"""A patch like the one that the service was made for: one memcpy() of a whole folio in place of a copy per page.

Which instructions copy_page(), copy_mc_to_kernel() and memcpy() are is chosen when the kernel boots, each by another
flag of the CPU. So the patch exchanges one primitive for another on some CPUs and not on others.
"""

from tests.testbed.edits import Edit
from tests.testbed.kernels import Recipe

_FUNCTION = (
    "void folio_copy(struct folio *dst, struct folio *src)\n{\n\tlong i = 0;\n\tlong nr = folio_nr_pages(src);\n\n"
)
_MC_FUNCTION = (
    "int folio_mc_copy(struct folio *dst, struct folio *src)\n{\n\tlong nr = folio_nr_pages(src);\n\tlong i = 0;\n\n"
)
# Without highmem all pages of a folio lie one after the other in the kernel's own mapping.
_BULK = "\tif (!IS_ENABLED(CONFIG_HIGHMEM)) {\n\t\tmemcpy(folio_address(dst), folio_address(src), folio_size(src));\n"
BULK_COPY = Recipe(
    "bulk-copy",
    (
        Edit("mm/util.c", _FUNCTION, f"{_FUNCTION}{_BULK}\t\treturn;\n\t}}\n\n"),
        Edit("mm/util.c", _MC_FUNCTION, f"{_MC_FUNCTION}{_BULK}\t\treturn 0;\n\t}}\n\n"),
    ),
)

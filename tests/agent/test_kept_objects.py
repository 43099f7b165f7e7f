"""When the objects of an earlier build are not to be used."""

import pytest
from tidemark_agent.build.checkout import misleads_make

PLAIN, LINK = b"100644", b"120000"


@pytest.mark.parametrize(
    ("before", "after", "status", "path", "misleads"),
    [
        (PLAIN, PLAIN, b"M", b"mm/memory.c", False),
        (PLAIN, PLAIN, b"M", b"include/linux/mm.h", False),
        (PLAIN, PLAIN, b"A", b"include/linux/new.h", True),
        (PLAIN, PLAIN, b"A", b"mm/new.c", False),
        (LINK, LINK, b"M", b"include/dt-bindings", True),
        (LINK, PLAIN, b"D", b"include/dt-bindings", True),
        (PLAIN, PLAIN, b"M", b"scripts/kallsyms.c", True),
        (PLAIN, PLAIN, b"M", b"scripts/sorttable.h", True),
        (PLAIN, PLAIN, b"M", b"arch/x86/tools/relocs.c", True),
        (PLAIN, PLAIN, b"M", b"tools/bpf/resolve_btfids/main.c", True),
        (PLAIN, PLAIN, b"M", b"tools/testing/selftests/mm/cow.c", False),
        (PLAIN, PLAIN, b"M", b"drivers/scripts/x.c", False),
    ],
)
def test_objects_are_not_kept_where_make_would_be_misled(
    before: bytes, after: bytes, status: bytes, path: bytes, *, misleads: bool
) -> None:
    assert misleads_make([b":" + before, after, b"1" * 40, b"2" * 40, status], path) is misleads

"""Whether two kernels with one hash are taken for the same code, told by what a series changes of a real tree."""

from collections.abc import Mapping

import pytest

from server.lab.trials.kernels import does_hash_tell
from server.sources.mirror import mirror, record_revisions
from tests.builders import build_series, build_tree, build_trial
from tests.sources.posting import Upstream

pytestmark = pytest.mark.django_db

HEADER = '/* Pages. */\n#define LEAF "/* no comment */" /* of a\n tree */\nint pages(void); // how many\n'
TREE = {
    "mm/memory.c": "int zero;\n",
    "mm/Makefile": "obj-y += memory.o\n",
    "mm/internal.h": "\n",
    "include/linux/mm.h": HEADER,
    "drivers/tty/vt/Makefile": "hostprogs += conmakehash\n",
    "drivers/tty/vt/conmakehash.c": "int main(void) { return 0; }\n",
    "arch/x86/kernel/cpu/mkcapflags.sh": "true\n",
    "arch/x86/kernel/cpu/Makefile": "cpufeature = $(src)/../../include/asm/cpufeatures.h\n",
    "arch/x86/include/asm/cpufeatures.h": "#define X86_FEATURE_FPU 0\n",
    "arch/x86/coco/shared.c": "\n",
    "arch/x86/boot/compressed/sev.c": '#include "../../coco/shared.c"\n#include <linux/mm.h>\n',
    "scripts/selinux/genheaders.c": '#include "classmap.h"\n',
    "kernel/sched/rq-offsets.c": '#include "sched.h"\n',
}


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Upstream:
    made = Upstream.create(tmp_path_factory.mktemp("kernel") / "tree")
    made.commit(TREE)
    return made


def tells(upstream: Upstream, files: Mapping[str, str], *, foreign_base: bool = False) -> bool:
    """Of a series that writes these files; each ends with the base as it was."""
    base = upstream.git("rev-parse", "HEAD")
    patched = upstream.commit(dict(files))
    mirror().output("fetch", "-q", str(upstream.path), "HEAD")
    upstream.git("reset", "-q", "--hard", base)
    tree = build_tree()
    (below,) = record_revisions(tree=tree, shas=[base], foreign=foreign_base)
    (head,) = record_revisions(tree=tree, shas=[patched], foreign=True)
    series = build_series(base=below, head=head)
    return does_hash_tell(build_trial(below, head, purpose="series", series=series))


@pytest.mark.parametrize(
    "path",
    [
        "mm/memory.c",
        "mm/internal.h",
        "fs/ext4/inode.c",
        "arch/x86/kernel/cpu/common.c",
        "kernel/entry.S",
        "Documentation/mm/index.rst",
        "tools/testing/selftests/mm/Makefile",
        "MAINTAINERS",
    ],
)
def test_hash_tells_of_code_that_is_compiled_in(upstream: Upstream, path: str) -> None:
    assert tells(upstream, {path: "int one;\n"})


@pytest.mark.parametrize(
    "path",
    [
        "Makefile",
        "mm/Makefile",
        "mm/Kbuild",
        "mm/Kconfig.debug",
        "Documentation/Kconfig",
        "arch/x86/boot/compressed/kaslr.c",
        "arch/x86/tools/relocs.c",
        "arch/x86/entry/vdso/vdso2c.c",
        "arch/x86/entry/syscalls/syscall_64.tbl",
        "arch/x86/kernel/cpu/mkcapflags.sh",
        "arch/x86/kernel/vmlinux.lds.S",
        "arch/x86/lib/inat.c",
        "arch/x86/kernel/asm-offsets.c",
        "arch/arm64/kernel/asm-offsets_64.c",
        "kernel/bounds.c",
        "arch/x86/include/asm/cpufeatures.h",
        "kernel/sched/sched.h",
        "arch/x86/coco/shared.c",
        "drivers/tty/vt/conmakehash.c",
        "drivers/tty/vt/vt.c",
        "drivers/tty/vt/below/new.h",
        "drivers/firmware/efi/libstub/x86-stub.c",
        "security/selinux/include/classmap.h",
        "include/linux/new.h",
        "kernel/gen_kheaders.sh",
        "lib/build_OID_registry",
        "lib/decompress_unxz.c",
        "scripts/mod/modpost.c",
        "tools/objtool/check.c",
        "tools/arch/x86/include/asm/insn.h",
        "usr/gen_init_cpio.c",
        "certs/extract-cert.c",
        "rust/macros/lib.rs",
    ],
)
def test_hash_does_not_tell_of_what_a_build_runs_or_puts_beside_vmlinux(upstream: Upstream, path: str) -> None:
    assert not tells(upstream, {"mm/memory.c": "int one;\n", path: "int one;\n"})


@pytest.mark.parametrize(
    ("header", "told"),
    [
        (HEADER.replace("Pages.", "Pages, don't /* ask."), True),
        (HEADER.replace("// how many", "\n\n/* how many */"), True),
        (HEADER.replace("no comment", "a comment"), False),
        (HEADER.replace("void", "int"), False),
        (HEADER + "// here \\\nint more;\n", True),
        (HEADER + "// here \rint more;\n", False),
        (HEADER + "/* here */ int more;\n", False),
        (HEADER + "#define ODD '\"' // \"\nint more;\n", False),
    ],
)
def test_headers_that_all_share_may_change_in_comments(upstream: Upstream, header: str, told: bool) -> None:
    assert tells(upstream, {"include/linux/mm.h": header}) == told


def test_comments_that_a_script_makes_code_of_are_code(upstream: Upstream) -> None:
    header = '#define X86_FEATURE_FPU 0 /* ", system(\\"true\\"), " */\n'
    assert not tells(upstream, {"arch/x86/include/asm/cpufeatures.h": header})


def test_hash_tells_of_a_step_within_a_series_only_where_all_below_it_is_compiled_in(upstream: Upstream) -> None:
    base = upstream.git("rev-parse", "HEAD")
    for first, told in (({"mm/internal.h": "int first;\n"}, True), ({"scripts/link.sh": "true\n"}, False)):
        shas = [base, upstream.commit(first), upstream.commit({"mm/memory.c": "int second;\n"})]
        mirror().output("fetch", "-q", str(upstream.path), "HEAD")
        upstream.git("reset", "-q", "--hard", base)
        tree = build_tree()
        (below,) = record_revisions(tree=tree, shas=shas[:1], foreign=False)
        step = record_revisions(tree=tree, shas=shas[1:], foreign=True)
        series = build_series(base=below, head=step[1])
        assert does_hash_tell(build_trial(*step, purpose="patch", series=series)) == told


def test_link_is_no_code(upstream: Upstream) -> None:
    (upstream.path / "mm/link.c").symlink_to("../scripts/selinux/genheaders.c")
    assert not tells(upstream, {})


def test_hash_does_not_tell_above_patches_of_others(upstream: Upstream) -> None:
    assert not tells(upstream, {"mm/memory.c": "int one;\n"}, foreign_base=True)


def test_hash_of_what_watched_trees_published_tells() -> None:
    assert does_hash_tell(build_trial(purpose="head"))

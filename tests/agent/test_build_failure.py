"""What a log says about a build that failed: the first error, its surroundings, and whose fault it was."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidemark_agent.build.failure import (
    LONGEST_EXCERPT,
    Ending,
    Failure,
    failure_of_file,
    find_failure,
    place_of,
    says_crashed,
    says_short,
)

from tests.agent.small_tree import MAKEFILE, small_build

GCC = """\
In file included from mm/internal.h:10,
                 from mm/memory.c:80:
mm/memory.c: In function 'do_anonymous_page':
mm/memory.c:4190:9: error: 'pgae' undeclared (first use in this function); did you mean 'page'?
 4190 |         pgae = alloc();
      |         ^~~~
      |         page
mm/memory.c:4190:9: note: each undeclared identifier is reported only once
make[2]: *** [scripts/Makefile.build:250: mm/memory.o] Error 1
make[1]: *** [Makefile:2012: mm] Error 2
"""


def found(log: str) -> tuple[str, Ending]:
    failure = find_failure(log.splitlines())
    return failure.line, failure.ending


@pytest.mark.parametrize(
    ("log", "line"),
    [
        (GCC, "mm/memory.c:4190:9: error: 'pgae' undeclared (first use in this function); did you mean 'page'?"),
        # With -j the first is the first in the log, of whatever kind.
        ('ERROR: modpost: "x" [a.ko] undefined!\nmm/a.c:1:2: error: late\n', 'ERROR: modpost: "x" [a.ko] undefined!'),
        ("ld.lld: error: undefined symbol: folio_copy\n", "ld.lld: error: undefined symbol: folio_copy"),
        (
            "aarch64-linux-gnu-ld: mm/a.o: in function `f':\nmm/a.c:(.text+0x4): undefined reference to `g'\n",
            "aarch64-linux-gnu-ld: mm/a.o: in function `f':",
        ),
        ("vmlinux.o: error: objtool: f+0x3: unsupported\n", "vmlinux.o: error: objtool: f+0x3: unsupported"),
        (
            "mm/Kconfig:12:error: recursive dependency detected!\n",
            "mm/Kconfig:12:error: recursive dependency detected!",
        ),
        ("Makefile:7: *** missing separator.  Stop.\n", "Makefile:7: *** missing separator.  Stop."),
        ("/bin/sh: 1: pahole: not found\n", "/bin/sh: 1: pahole: not found"),
        ("FAILED: load BTF from vmlinux: Invalid argument\n", "FAILED: load BTF from vmlinux: Invalid argument"),
    ],
)
def test_first_error_of_every_tool_is_found(log: str, line: str) -> None:
    assert found(log) == (line, Ending.ERROR)


@pytest.mark.parametrize(
    "line",
    [
        "ld: warning: vmlinux has a LOAD segment with RWX permissions",
        "aarch64-linux-gnu-ld: warning: orphan section",
        ".config:1430:warning: override: NO_HZ_IDLE changes choice state",
        "mm/Kconfig:3:warning: ignoring unsupported character",
        "lib/error.c:4:2: warning: unused variable 'error'",
        "  CC      drivers/edac/ghes_edac.o",
    ],
)
def test_warnings_are_no_errors(line: str) -> None:
    assert find_failure([line, "mm/a.c:1:1: error: real"]).line == "mm/a.c:1:1: error: real"


@pytest.mark.parametrize(
    ("log", "ending"),
    [
        ("mm/a.c:9:1: internal compiler error: in expand\nPlease submit a full bug report", Ending.COMPILER_CRASH),
        ("gcc: internal compiler error: Segmentation fault signal terminated program cc1", Ending.COMPILER_CRASH),
        ("PLEASE submit a bug report\nclang-14: error: clang frontend command failed", Ending.COMPILER_CRASH),
        ("fatal error: error in backend: Cannot select: t5\n", Ending.COMPILER_CRASH),
        ("gcc: fatal error: Killed signal terminated program cc1\ncompilation terminated.", Ending.KILLED),
        ("Killed\nmake[2]: *** [scripts/Makefile.vmlinux:34: vmlinux] Error 137", Ending.KILLED),
        ("link.sh: line 52:   123 Killed     ${ld}\nmake: *** [Makefile:9: vmlinux] Error 137", Ending.KILLED),
        ("collect2: fatal error: ld terminated with signal 9 [Killed]", Ending.KILLED),
        ("clang-14: error: unable to execute command: Killed", Ending.KILLED),
        ("scripts/link-vmlinux.sh: line 65: 812 done: Killed", Ending.KILLED),
        ("mm/a.c:1:2: error: expected ';'", Ending.ERROR),
    ],
)  # fmt: skip
def test_crash_of_the_compiler_and_its_being_killed_are_told_apart(log: str, ending: Ending) -> None:
    failure = find_failure(log.splitlines())
    assert failure.ending is ending
    assert failure.line


def test_excerpt_has_the_lines_around_the_error() -> None:
    excerpt = find_failure(["x" * 50] * 100 + GCC.splitlines() + ["y" * 50] * 100).excerpt
    assert "In function 'do_anonymous_page'" in excerpt
    assert "|         ^~~~" in excerpt
    assert excerpt.count("x" * 50) < 10
    assert excerpt.count("y" * 50) < 15


def test_lines_of_megabytes_and_empty_logs_are_read_as_well(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"a" * 3_000_000 + b"\nmm/a.c:1:1: error: far below " + b"e" * 10_000 + b"\n" + b"z\xff\0" * 9000)
    failure = failure_of_file(log)
    assert failure.line.startswith("mm/a.c:1:1: error: far below ee")
    assert len(failure.excerpt) <= LONGEST_EXCERPT
    log.write_bytes(b"")
    assert failure_of_file(log, start=500).line == ""


@given(st.text(max_size=600))
def test_any_log_can_be_read(log: str) -> None:
    failure = find_failure(log.split("\n"))
    assert len(failure.excerpt) <= LONGEST_EXCERPT


def failing_tree(words: str) -> dict[str, str]:
    broken = MAKEFILE.replace(
        "\t@cp $(O)/vmlinux $(O)/arch/x86", f"\t@echo '{words}'; false\n\t@cp $(O)/vmlinux $(O)/arch/x86"
    )
    return {"Makefile": broken}  # fmt: skip


def test_compiler_crash_that_comes_again_is_called_so_and_is_the_kernels_failure(tmp_path: Path) -> None:
    outcome = small_build(tmp_path, failing_tree("mm/a.c:9:1: internal compiler error: in expand"))
    assert outcome.outcome == "failed"
    assert outcome.reason == "the compiler crashed: mm/a.c:9:1: internal compiler error: in expand"
    assert "the step is run once more" in outcome.log_tail


SHORT = [
    "as: cannot write: No space left on device",
    "tee: Disk quota exceeded",
    "/bin/sh: 1: echo: echo: I/O error",
    "make: gcc: Resource temporarily unavailable",
    "/bin/sh: 0: Cannot fork",
    "cc1: error: out of memory allocating 4096 bytes",
    "perl: Out of memory!",
    "MemoryError",
    "xz: (stdin): not enough memory",
    "gcc: fatal error: cannot execute cc1: posix_spawn: Cannot allocate memory",
    "sh: main.c: Too many open files in system",
]


@pytest.mark.parametrize("words", SHORT)
def test_words_of_what_lacks_something_that_all_share_are_known(words: str) -> None:
    log = f"  CC      mm/a.o\n{words}\n"
    assert (says_short(log), says_crashed(log)) == (True, False)


@pytest.mark.parametrize(
    "words",
    [
        "gcc: internal compiler error: Segmentation fault signal terminated program cc1",
        "clang: error: unable to execute command: Segmentation fault (core dumped)",
        "collect2: fatal error: ld terminated with signal 11 [Segmentation fault], core dumped",
        "Segmentation fault (core dumped)",
        "make[2]: *** [scripts/Makefile.build:243: mm/a.o] Error 139",
    ],
)
def test_words_of_a_crash_are_known_and_its_place_is_what_was_to_be_made(words: str) -> None:
    """The line of a driver is the same for all objects."""
    log = f"{words}\nmake: *** [Makefile:9: mm/a.o] Error 1\n"
    assert (says_crashed(log), says_short(log)) == (True, False)
    assert place_of(find_failure(log.splitlines()), log) == "mm/a.o"


@pytest.mark.parametrize("excerpt", [' 4190 |  pr_err("No space left on device");', '      |  "out of memory"'])
def test_source_that_the_compiler_shows_says_nothing_of_the_host(excerpt: str) -> None:
    assert not says_short(f"mm/a.c:4190:9: error: 'pgae' undeclared\n{excerpt}\n")
    assert says_short(f"{excerpt}\ngcc: error: No space left on device\n")


def test_error_of_an_earlier_step_is_not_that_of_the_one_that_failed(tmp_path: Path) -> None:
    tree = failing_tree("mm/a.c:1:1: error: the real one")
    tree["Makefile"] = tree["Makefile"].replace("allnoconfig:\n", "allnoconfig:\n\t@echo 'x.c:1:1: error: harmless'\n")
    outcome = small_build(tmp_path, tree)
    assert outcome.reason == "mm/a.c:1:1: error: the real one"
    assert "the real one" in outcome.first_error
    assert "harmless" not in outcome.first_error


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("make[3]: *** [scripts/Makefile.build:250: mm/util.o] Error 139", "mm/util.o"),
        ("make: *** [vmlinux] Error 139", "vmlinux"),
        # Half a megabyte of beginnings: where the name might run over lines, each would be read to the end of the log.
        ("make: *** [\n" * 40_000, ""),
        ("make: *** [a\nb] Error 1", ""),
    ],
)
def test_place_of_a_step_stands_on_one_line(line: str, place: str) -> None:
    assert place_of(Failure("Segmentation fault"), f"CC mm/util.o\n{line}\n") == place

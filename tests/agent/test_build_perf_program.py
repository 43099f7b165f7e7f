"""perf of the kernel's own tree: made when it is wanted, missed by nobody when it cannot be made."""

from pathlib import Path

from tests.agent.small_tree import small_build

MAKEFILE = """\
%/perf:
\t@echo making $(O) $(CC) $(NO_LIBELF) >&2
\t@$(CC) $(LDFLAGS) -o $@ -x c perf.c
"""
PROGRAM = "int main(void) { return 0; }\n"
TREE = {"tools/perf/Makefile": MAKEFILE, "tools/perf/perf.c": PROGRAM}


def test_perf_comes_with_the_kernel_when_it_is_wanted(tmp_path: Path) -> None:
    outcome = small_build(tmp_path, TREE, perf=True)
    assert outcome.outcome == "built"
    assert outcome.files["perf"].read_bytes().startswith(b"\x7fELF")


def test_nobody_makes_a_perf_that_is_not_wanted(tmp_path: Path) -> None:
    assert "perf" not in small_build(tmp_path, TREE).files


def test_kernel_is_good_though_its_perf_does_not_compile(tmp_path: Path) -> None:
    outcome = small_build(tmp_path, {**TREE, "tools/perf/perf.c": "int main(void) { return missing; }\n"}, perf=True)
    assert (outcome.outcome, outcome.reason, outcome.first_error) == ("built", "", "")
    assert "perf" not in outcome.files
    log = outcome.files["log"].read_text()
    assert "tidemark: there is no perf of this tree: perf.c:1:" in log


def test_perf_that_is_a_link_is_not_handed_out(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("token")
    makefile = f"%/perf:\n\t@ln -s {secret} $@\n"
    outcome = small_build(tmp_path, {**TREE, "tools/perf/Makefile": makefile}, perf=True)
    assert outcome.outcome == "built"
    assert "perf" not in outcome.files

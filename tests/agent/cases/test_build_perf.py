"""The recipe for a static perf, tried on a source that is made up."""

import subprocess
from pathlib import Path

import pytest

from scripts.build_agent import AGENTS

RECIPE = AGENTS / "benchmarks" / "mem-mmap" / "build-perf.sh"
MAKEFILE = "include Makefile.perf\n"
# Like the real one: everything goes below O, and the program is the only target.
RULES = "$(O)/perf: perf.c\n\t@test $(NO_LIBELF) = 1\n\t@cc $(LDFLAGS) -o $@ perf.c\n"
PROGRAM = (
    '#include <stdio.h>\nint main(int n, char **words) { puts(n > 2 ? "populate" : "perf version 7.3"); return 0; }\n'
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "linux/tools/perf"
    folder.mkdir(parents=True)
    (folder / "Makefile").write_text(MAKEFILE)
    (folder / "Makefile.perf").write_text(RULES)
    (folder / "perf.c").write_text(PROGRAM)
    return tmp_path / "linux"


def build(*words: Path | str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", RECIPE, *words], capture_output=True, text=True, check=False)


def test_program_is_static_and_nothing_is_written_into_the_source(source: Path, tmp_path: Path) -> None:
    before = sorted(source.rglob("*"))
    done = build(source, tmp_path / "perf")
    assert done.returncode == 0, done.stderr
    assert "perf version 7.3, SHA-256 " in done.stdout
    headers = subprocess.run(["readelf", "-lW", tmp_path / "perf"], capture_output=True, text=True, check=True)
    assert "LOAD" in headers.stdout
    assert "INTERP" not in headers.stdout
    assert sorted(source.rglob("*")) == before


def test_source_whose_perf_has_no_mmap_makes_no_program(source: Path, tmp_path: Path) -> None:
    (source / "tools/perf/perf.c").write_text(PROGRAM.replace("populate", "memcpy"))
    done = build(source, tmp_path / "perf")
    assert (done.returncode, (tmp_path / "perf").exists()) == (1, False)
    assert "no 'bench mem mmap'" in done.stderr


def test_folder_that_is_no_kernel_source_is_refused(tmp_path: Path) -> None:
    assert build(tmp_path, tmp_path / "perf").returncode == 2
    assert "usage" in build().stderr

"""Cases of module benchmarks: what is run for them, and how each answer of the module ends."""

import errno
import io
import json
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
from tidemark_agent.benchmarks.bundle import find_benchmark
from tidemark_agent.build.modules import module_file
from tidemark_agent.cases import module_run
from tidemark_agent.cases.programs import CaseEndedError, Surroundings, module_ready
from tidemark_agent.log import Log

BENCHMARK = find_benchmark("folio-copy")
CASE = BENCHMARK.cases["folio_copy-2m-cold-0to1"]


def surroundings(state: Path, modules: Path | None) -> Surroundings:
    log = Log(io.StringIO())
    return Surroundings(state, programs={}, modules=modules, core_types=(), log=log, stop=threading.Event())


def test_case_without_its_module_is_skipped_and_says_which(tmp_path: Path) -> None:
    for modules, reason in (
        (None, "no modules were built"),
        (tmp_path, "tidemark_folio_copy in version [0-9a-f]{12} was not built"),
    ):
        with pytest.raises(CaseEndedError, match=reason) as ended:
            module_ready(BENCHMARK, CASE, surroundings(tmp_path, modules), tmp_path)
        assert ended.value.outcome == "skipped"


def test_module_of_another_version_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / f"tidemark_folio_copy-{'0' * 64}.ko").write_bytes(b"")
    with pytest.raises(CaseEndedError, match="was not built"):
        module_ready(BENCHMARK, CASE, surroundings(tmp_path, tmp_path), tmp_path)


def test_module_is_recorded_and_handed_to_the_program_that_asks_it(tmp_path: Path) -> None:
    path = tmp_path / module_file(BENCHMARK)
    path.write_bytes(b"")
    ready = module_ready(BENCHMARK, CASE, surroundings(tmp_path, tmp_path), tmp_path)
    assert ready.words[0] == sys.executable
    assert ready.words[-2:] == (str(path), "tidemark_folio_copy")
    assert ready.files == {path.name: path}
    assert CASE.command[-4:] == ("function=folio_copy", "size=2m", "cache=cold", "direction=0to1")


Ask = Callable[[Path, str], str]


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Ask], int]:
    """Runs the program for two runs of a case, with a module that answers as the test says."""
    folder = tmp_path / "tidemark_x"
    folder.mkdir()
    (folder / "run").touch()
    monkeypatch.setattr(module_run, "_DEBUGFS", tmp_path)
    monkeypatch.setattr(module_run, "_loaded", lambda *_: nullcontext())
    monkeypatch.setattr("os.sched_setaffinity", lambda *_: None)

    def run(ask: Ask) -> int:
        monkeypatch.setattr(module_run, "_ask", ask)
        return module_run.main(["x.ko", "tidemark_x", "some-case", "2", "size=2m", "cache=cold"])

    return run


def test_each_run_is_one_line(asked: Callable[[Ask], int], capsys: pytest.CaptureFixture[str]) -> None:
    requests: list[str] = []

    def ask(_path: Path, request: str) -> str:
        requests.append(request)
        return f"time {len(requests)}.5000\n"

    assert asked(ask) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [{"case": "some-case", "metric": "time", "value": value} for value in (1.5, 2.5)]
    assert requests[0] == requests[1]
    assert requests[0].startswith("size=2m cache=cold evict=")


@pytest.mark.parametrize(
    ("number", "status", "said"),
    [
        (errno.EOPNOTSUPP, 0, "not here: why"),
        (errno.ENODEV, 0, "not here: why"),
        (errno.ENOMEM, 1, '{"case": "some-case", "error": "why"}'),
        (errno.EIO, 1, '{"case": "some-case", "error": "why"}'),
    ],
)
def test_what_the_machine_does_not_have_is_no_failure(
    asked: Callable[[Ask], int], capsys: pytest.CaptureFixture[str], number: int, status: int, said: str
) -> None:
    def ask(_path: Path, _request: str) -> str:
        raise OSError(number, "why")

    assert asked(ask) == status
    assert capsys.readouterr().out == f"{said}\n"


@pytest.mark.parametrize("answer", ["time\n", "time fast\n", "time 1,5\n"])
def test_answer_that_is_no_number_is_an_error(
    asked: Callable[[Ask], int], capsys: pytest.CaptureFixture[str], answer: str
) -> None:
    assert asked(lambda _path, _request: answer) == 1
    assert "is not understood" in json.loads(capsys.readouterr().out)["error"]


def test_module_that_cannot_be_loaded_is_not_a_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert module_run.main([str(tmp_path / "none.ko"), "tidemark_x", "case", "1"]) == 127
    assert "cannot be loaded" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("sizes", "evict_kb"),
    [
        (["48K", "2048K", "32768K"], 4 * 32768),
        (["32K"], 8 * 1024),
        (["1152M"], 1024 * 1024),
        (["", "K", "12Q", "ééé"], 8 * 1024),
        ([], 8 * 1024),
    ],
)
def test_as_much_is_read_as_pushes_everything_out_of_the_caches(
    tmp_path: Path, sizes: list[str], evict_kb: int
) -> None:
    for number, size in enumerate(sizes):
        folder = tmp_path / f"sys/devices/system/cpu/cpu3/cache/index{number}"
        folder.mkdir(parents=True)
        (folder / "size").write_text(f"{size}\n")
    assert module_run.eviction_kb(3, tmp_path) == evict_kb

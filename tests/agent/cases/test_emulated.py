"""The qemu driver runs what it can, and says of the rest that it cannot."""

import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tidemark_agent.benchmarks.bundle import benchmark_names, find_benchmark
from tidemark_agent.boot.console import Note
from tidemark_agent.boot.driver import BootOutcome
from tidemark_agent.boot.qemu import is_static_program, split_cases
from tidemark_agent.log import Log
from tidemark_agent.session import SessionRunner
from tidemark_agent.wire.assignment import KernelImage, PlannedBoot, PlannedCase, SessionJob
from tidemark_agent.wire.client import Client
from tidemark_agent.wire.spool import Spool


def planned(benchmark: str, case: str) -> PlannedCase:
    return PlannedCase(benchmark, find_benchmark(benchmark).version, case, 3, 1, 60, ("time",))


def test_static_programs_run_and_the_others_are_skipped_with_the_reason() -> None:
    cases = [planned("mem-mmap", "demand-4k"), planned("mm-basic", "copy"), planned("will-it-scale", "brk1-threads-1")]
    able, notes = split_cases(cases, {case.benchmark: find_benchmark(case.benchmark) for case in cases})
    assert able == (cases[1],)
    assert [(note.benchmark, note.case, note.outcome) for note in notes] == [
        ("mem-mmap", "demand-4k", "skipped"),
        ("will-it-scale", "brk1-threads-1", "skipped"),
    ]
    assert "needs an agent inside the machine" in notes[0].reason


@pytest.mark.parametrize("name", benchmark_names())
def test_only_programs_made_from_their_folder_can_run_without_an_agent(name: str) -> None:
    benchmark = find_benchmark(name)
    able = [case for case in benchmark.cases if is_static_program(benchmark, case)]
    assert able == (list(benchmark.cases) if name == "mm-basic" else [])
    assert not is_static_program(benchmark, "no-such-case")


def test_session_hands_the_skipped_cases_over_with_each_boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    booted: list[tuple[PlannedCase, ...]] = []
    handed: list[BootOutcome] = []
    now = datetime.now(UTC)

    class Driver:
        def boot(self, _kernel: KernelImage, cases: tuple[PlannedCase, ...]) -> BootOutcome:
            booted.append(cases)
            own = Note("mm-basic", "copy", "failed", "exit status 1")
            return BootOutcome("measured", "", started_at=now, ended_at=now, notes=(own,))

    def hand_over(_runner: SessionRunner, _boot: PlannedBoot, outcome: BootOutcome) -> bool:
        handed.append(outcome)
        return True

    monkeypatch.setattr(SessionRunner, "_driver", lambda *_: Driver())
    monkeypatch.setattr(SessionRunner, "_is_wanted", lambda *_: True)
    monkeypatch.setattr(SessionRunner, "_hand_over", hand_over)
    cases = (planned("mm-basic", "copy"), planned("mem-mmap", "demand-4k"))
    log, stop = Log(), threading.Event()
    runner = SessionRunner(
        key="session-1-1",
        job=session_of(cases),
        state=tmp_path,
        client=Client(server="http://127.0.0.1:1", token=lambda: "token", agent="agent-1", log=log, stop=stop),
        spool=Spool(tmp_path / "spool", owner=tmp_path / "token", log=log),
        log=log,
        stop=stop,
        progress=lambda _: None,
        require=lambda: None,
        patience=1,
    )
    assert runner.run() == ""
    assert booted == [cases[:1]] * 2
    assert [[note.case for note in outcome.notes] for outcome in handed] == [["copy", "demand-4k"]] * 2


def session_of(cases: tuple[PlannedCase, ...]) -> SessionJob:
    kernel = KernelImage(image="0" * 64, build_id="1" * 40)
    return SessionJob(
        machine="vm",
        boot_driver="qemu",
        virtual=True,
        clock="wall",
        sandbox=True,
        options={},
        boot_timeout_seconds=60,
        kernels={"base": kernel, "patched": kernel},
        boots=(PlannedBoot(0, "base"), PlannedBoot(1, "patched")),
        cases=cases,
    )

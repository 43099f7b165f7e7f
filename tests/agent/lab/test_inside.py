"""The cases of one boot."""

import threading
import time
from pathlib import Path

import pytest
from tidemark_agent.cases.programs import CaseResult
from tidemark_agent.errors import InfrastructureError
from tidemark_agent.lab.journal import Journal
from tidemark_agent.lab.measurement import CaseLoop, Deadline, Watchdog
from tidemark_agent.lab.uplink import LiveLog
from tidemark_agent.log import Log
from tidemark_agent.probe import CoreKind
from tidemark_agent.wire.assignment import PlannedCase

from tests.agent.lab.world import Silent

CASE = PlannedCase("b", "v", "c", 2, 1, 60, ("time",))
LOG = Log(Silent())


class Scripted:
    """Cases that end as they are told, one after another."""

    def __init__(self, *outcomes: str, changed: tuple[str, ...] = ()) -> None:
        self.outcomes = list(outcomes)
        self.changed = changed

    def run(self, case: PlannedCase, core: CoreKind) -> CaseResult:
        outcome = self.outcomes.pop(0)
        if outcome == "raises":
            raise InfrastructureError("huge-pages: 3 of 64 pages")
        values = {"time": (1.0, 2.0)} if outcome == "measured" else {}
        return CaseResult(case.benchmark, case.version, case.case, core.name, outcome, values=values)

    def verify(self) -> tuple[str, ...]:
        return self.changed


def loop(folder: Path, *cores: str) -> CaseLoop:
    return CaseLoop(
        journal=Journal(folder),
        position=0,
        cases=[CASE],
        cores=[CoreKind(name, "0") for name in cores or ("all",)],
        begun={},
        results=[],
        log=LOG,
        tell=lambda _text: None,
    )


def test_each_core_type_is_measured(tmp_path: Path) -> None:
    cases = loop(tmp_path, "big", "little")
    cases.run(Scripted("measured", "failed"))
    assert [(result["core_type"], result["outcome"]) for result in cases.results] == [
        ("big", "measured"),
        ("little", "failed"),
    ]


def test_trouble_of_ours_is_tried_once_more(tmp_path: Path) -> None:
    cases = loop(tmp_path)
    runner = Scripted("raises", "measured")
    cases.run(runner)
    assert (cases.results[0]["outcome"], runner.outcomes) == ("measured", [])
    again = loop(tmp_path / "again")
    again.run(Scripted("raises", "raises", "measured"))
    assert (again.results[0]["outcome"], again.results[0]["reason"]) == ("infrastructure", "huge-pages: 3 of 64 pages")


def test_kernels_fault_is_not_tried_again(tmp_path: Path) -> None:
    cases = loop(tmp_path)
    runner = Scripted("failed", "measured")
    cases.run(runner)
    assert (cases.results[0]["outcome"], runner.outcomes) == ("failed", ["measured"])


def test_values_under_changed_settings_are_no_measurement(tmp_path: Path) -> None:
    cases = loop(tmp_path)
    cases.run(Scripted("measured", "measured", changed=("governor: policy0 was set to 'performance'",)))
    (result,) = cases.results
    assert (result["outcome"], result["values"]) == ("infrastructure", {})
    assert "settings changed while it ran: governor" in result["reason"]


def test_deadline_counts_from_the_start_of_the_kernel() -> None:
    stop = threading.Event()
    with Deadline(0.0, stop, LOG) as over:
        assert stop.wait(5)
        assert over.is_over
    stop.clear()
    with Deadline(time.clock_gettime(time.CLOCK_BOOTTIME) + 60, stop, LOG) as far:
        assert not stop.wait(0.05)
        assert not far.is_over


def test_watchdog_is_petted_and_told_of_the_end(tmp_path: Path) -> None:
    device = tmp_path / "watchdog"
    device.touch()
    # A plain file takes no timeout, which is only worth a warning.
    with Watchdog(str(device), 60.0, LOG):
        deadline = time.monotonic() + 5
        while not device.read_bytes() and time.monotonic() < deadline:
            time.sleep(0.01)
    assert device.read_bytes() == b"\0V"


def test_missing_watchdog_does_not_stop_the_boot(tmp_path: Path) -> None:
    with Watchdog(str(tmp_path / "none"), 60.0, LOG), Watchdog("", 60.0, LOG):
        pass
    assert not (tmp_path / "none").exists()


def test_live_log_travels_in_pieces_and_comes_back_when_it_did_not_arrive() -> None:
    live = LiveLog()
    live.write("a" * 20_000)
    piece = live.take()
    assert len(piece) == 16 * 1024
    live.give_back(piece)
    assert live.take() + live.take() == "a" * 20_000
    live.write("b" * 100_000)
    assert sum(len(live.take()) for _ in range(10)) == 64 * 1024


def test_deadline_sets_nothing_after_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    stop, logging = threading.Event(), threading.Event()

    def slow(_log: Log, _event: str, **_fields: object) -> None:
        logging.set()
        time.sleep(0.2)

    monkeypatch.setattr(Log, "failure", slow)
    with Deadline(0.0, stop, LOG):
        assert logging.wait(5)
    assert stop.is_set()

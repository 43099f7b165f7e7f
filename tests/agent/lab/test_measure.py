"""One boot from inside: what its result is made of, and how its deadline ends it."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tidemark_agent.boot.evidence import RunningSystem
from tidemark_agent.cases.programs import CaseResult
from tidemark_agent.config import AgentConfig
from tidemark_agent.errors import StoppedError
from tidemark_agent.lab import measurement
from tidemark_agent.lab.journal import Booted, Journal, Progress
from tidemark_agent.lab.measurement import Measuring
from tidemark_agent.log import Log
from tidemark_agent.prepare import CannotMeasureError, Setting
from tidemark_agent.probe import CoreKind
from tidemark_agent.wire.assignment import PlannedBoot, PlannedCase, read_assignment

from tests.agent.lab.world import KERNELS, Silent, session_document

INSIDE = RunningSystem("boot-2", KERNELS["base"], "nonce", "ro tidemark.boot=nonce")
SETTING = Setting("aslr", "on", "off", "on", "set")


class Prepared:
    """A machine whose settings can be had, or not."""

    def __init__(self, trouble: str = "") -> None:
        self.trouble = trouble
        self.restored = 0

    def replay(self) -> tuple[str, ...]:
        return ()

    def apply(self) -> tuple[Setting, ...]:
        if self.trouble:
            raise CannotMeasureError(self.trouble)
        return (SETTING,)

    @contextmanager
    def case(self, _wants: Mapping[str, Any]) -> Iterator[tuple[Setting, ...]]:
        yield ()

    def verify(self) -> tuple[str, ...]:
        return ()

    def measured_cpus(self) -> str:
        return "0"

    def restore(self) -> tuple[str, ...]:
        self.restored += 1
        return ()


class Cases:
    """Cases that measure, or wait for the stop as a hanging one does."""

    hanging: str = ""

    def __init__(self, surroundings: Any) -> None:
        self.stop = surroundings.stop

    def run(self, case: PlannedCase, core: CoreKind, _settings: Any) -> CaseResult:
        if case.case == self.hanging:
            assert self.stop.wait(10)
            raise StoppedError("the benchmark was ended")
        return CaseResult(case.benchmark, case.version, case.case, core.name, "measured", values={"time": (1.0, 2.0)})


@pytest.fixture(autouse=True)
def _stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurement, "CaseRunner", Cases)
    monkeypatch.setattr(measurement, "wait_until_quiet", lambda *_args, **_options: 0.0)
    monkeypatch.setattr(Cases, "hanging", "")


def run(
    folder: Path, prepared: Prepared, *, seconds: float = 1e9, stop: threading.Event | None = None
) -> dict[str, Any]:
    (folder / "sys/devices/system/cpu").mkdir(parents=True, exist_ok=True)
    (folder / "sys/devices/system/cpu/online").write_text("0\n")
    document = session_document(boots=1)
    document["session"]["boot_timeout_seconds"] = seconds
    progress = Progress(assignment=read_assignment(document), booted=Booted("nonce", "boot-2", 1.0))
    measuring = Measuring(
        config=AgentConfig("http://127.0.0.1:9", folder / "token", folder / "state"),
        journal=Journal(folder / "lab"),
        preparation=prepared,  # type: ignore[arg-type]  # (a stand-in with the same methods)
        modules=None,
        log=Log(Silent()),
        stop=stop or threading.Event(),
        tell=lambda _text: None,
        root=folder,
    )
    return measuring.measure(progress, PlannedBoot(0, "base"), INSIDE)


def test_result_has_proof_facts_settings_and_values(tmp_path: Path) -> None:
    prepared = Prepared()
    body = run(tmp_path, prepared)
    assert (body["outcome"], body["boot_id"], body["build_id"]) == ("measured", "boot-2", KERNELS["base"])
    assert [values["case"] for values in body["measurements"]] == ["c0", "c1"]
    assert body["conditions"]["settings"] == [SETTING.as_json()]
    assert "uarch" in body["facts"]
    assert prepared.restored == 1


def test_machine_that_cannot_be_prepared_is_infrastructure_with_the_reason(tmp_path: Path) -> None:
    prepared = Prepared("governor: cannot be set")
    body = run(tmp_path, prepared)
    assert (body["outcome"], body["reason"]) == ("infrastructure", "governor: cannot be set")
    assert (prepared.restored, "uarch" in body["facts"]) == (1, True)


def test_boots_deadline_ends_the_case_and_keeps_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cases, "hanging", "c1")
    monkeypatch.setattr("tidemark_agent.lab.measurement.time.clock_gettime", lambda _clock: 100.0)
    stop = threading.Event()
    body = run(tmp_path, Prepared(), seconds=101.0, stop=stop)
    assert (body["outcome"], [values["case"] for values in body["measurements"]]) == ("measured", ["c0"])
    assert [(note["case"], note["outcome"]) for note in body["notes"]] == [("c1", "timeout")]
    assert not stop.is_set()


def test_stop_from_outside_is_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cases, "hanging", "c1")
    stop, prepared = threading.Event(), Prepared()
    threading.Timer(0.2, stop.set).start()
    with pytest.raises(StoppedError):
        run(tmp_path, prepared, stop=stop)
    assert prepared.restored == 1
    assert [entry["event"] for entry in Journal(tmp_path / "lab").entries()][-1] == "case-begun"


def test_deadline_that_passes_while_the_machine_cannot_be_prepared_stops_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemark_agent.lab.measurement.time.clock_gettime", lambda _clock: 100.0)
    stop, prepared = threading.Event(), Prepared("the machine was not quiet")
    monkeypatch.setattr(prepared, "replay", lambda: (str(stop.wait(10)),))
    body = run(tmp_path, prepared, seconds=100.0, stop=stop)
    assert (body["outcome"], body["reason"]) == ("infrastructure", "the machine was not quiet")
    assert not stop.is_set()

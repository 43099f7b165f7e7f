"""The qemu driver runs what it can, and says of the rest that it cannot."""

import errno
import hashlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tidemark_agent.benchmarks.bundle import benchmark_names, find_benchmark
from tidemark_agent.boot.console import Note
from tidemark_agent.boot.driver import BootOutcome
from tidemark_agent.boot.qemu import QemuDriver, is_static_program, split_cases
from tidemark_agent.errors import InfrastructureError, StoppedError
from tidemark_agent.lab.emulated import EmulatedBoots
from tidemark_agent.log import Log
from tidemark_agent.wire.assignment import KernelImage, PlannedCase, SessionJob, read_assignment
from tidemark_agent.wire.client import Client, Lease
from tidemark_agent.wire.spool import Spool

from tests.agent.fake_server import PREFIX, TOKEN, Lab, running_server
from tests.agent.lab.world import Silent


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


KEY, IMAGE = "session-1-1", b"an image"


def emulated(cases: Sequence[PlannedCase], boots: int = 2) -> dict[str, Any]:
    """The claim's answer."""
    kernel = {"image": hashlib.sha256(IMAGE).hexdigest(), "build_id": "1" * 40}
    arms = ["base", "patched"]
    session = {
        "machine": "vm",
        "boot_driver": "qemu",
        "virtual": True,
        "clock": "wall",
        "options": {},
        "boot_timeout_seconds": 60,
        "kernels": dict.fromkeys(arms, kernel),
        "boots": [{"position": number, "arm": arms[number % 2]} for number in range(boots)],
        "cases": [{**asdict(case), "metrics": list(case.metrics)} for case in cases],
    }
    return {"kind": "session", "key": KEY, "trace": "t", "lease_seconds": 60, "session": session}


def told(outcome: str, reason: str = "") -> BootOutcome:
    now = datetime.now(UTC)
    own = Note("mm-basic", "copy", "failed", "exit status 1")
    return BootOutcome(outcome, reason, started_at=now, ended_at=now, notes=(own,))


@dataclass
class Session:
    """A session that is made against a server, by an emulator that ends each boot as it is told."""

    folder: Path
    ends: Mapping[int, BootOutcome]
    lab: Lab = field(default_factory=Lab)
    ended_while_it_boots: bool = False
    booted: list[list[str]] = field(default_factory=list)
    spool: Spool = field(init=False)

    def boot(self, _kernel: KernelImage, cases: Sequence[PlannedCase]) -> BootOutcome:
        if self.ended_while_it_boots:
            self.lab.unwanted.add(KEY)
        self.booted.append([case.case for case in cases])
        return self.ends.get(len(self.booted) - 1, told("measured"))

    def run(self, boots: int = 2) -> str:
        cases = (planned("mm-basic", "copy"), planned("mem-mmap", "demand-4k"))
        answer = emulated(cases, boots)
        self.lab.assignments[KEY], self.lab.holders[KEY] = answer, "agent-1"
        self.lab.artifacts[hashlib.sha256(IMAGE).hexdigest()] = IMAGE
        log, stop, assignment = Log(Silent()), threading.Event(), read_assignment(answer)
        assert isinstance(assignment.job, SessionJob)
        with running_server(self.lab) as server:
            client = Client(server=server, token=lambda: TOKEN, agent="agent-1", log=log, stop=stop)
            lease = Lease(client, KEY, seconds=60, stop=stop, log=log)
            made = EmulatedBoots(KEY, assignment.job, self.folder, client, lease, log, stop)
            return made.run(answer, self.spool, patience=1)

    def made(self) -> list[int]:
        return [position for _, position in sorted(self.lab.boots)]


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    made = Session(tmp_path, {})
    made.spool = Spool(tmp_path / "spool", owner=tmp_path / "token", log=Log(Silent()))
    monkeypatch.setattr(QemuDriver, "boot", made.boot)
    monkeypatch.setattr(EmulatedBoots, "_initramfs", lambda _: tmp_path / "initramfs")
    return made


def test_session_hands_the_skipped_cases_over_with_each_boot(session: Session) -> None:
    assert session.run() == ""
    assert session.booted == [["copy"]] * 2
    notes = [[note["case"] for note in body["notes"]] for body in session.lab.boots.values()]
    assert notes == [["copy", "demand-4k"]] * 2
    assert [path.removeprefix(f"{PREFIX}attempts/{KEY}/") for _, path in session.lab.calls if KEY in path] == [
        "boots/0/start", "boots/0", "boots/1/start", "boots/1",
    ]  # fmt: skip
    assert not list((session.folder / "boots").iterdir()), "nothing is left of its boots"


def test_session_goes_on_after_a_panic_and_not_after_trouble_of_ours(session: Session) -> None:
    session.ends = {0: told("panic", "it died"), 1: told("infrastructure", "no sandbox")}
    assert session.run(4) == "no sandbox"
    assert session.made() == [0, 1]
    assert [body["outcome"] for body in session.lab.boots.values()] == ["panic", "infrastructure"]


def test_session_that_nobody_wants_any_more_is_done(session: Session) -> None:
    session.lab.unwanted.add(KEY)
    assert session.run() == ""
    assert session.booted == []


def test_nothing_is_said_against_a_kernel_for_work_that_was_ended(session: Session) -> None:
    session.ends, session.ended_while_it_boots = {0: told("panic", "its emulator was killed")}, True
    with pytest.raises(StoppedError, match="the server wants no more"):
        session.run()
    assert session.lab.boots == {}


def test_what_finds_no_room_in_the_spool_is_sent_without_it(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(session.spool, "put", full)
    assert session.run() == ""
    assert session.made() == [0, 1]


def test_what_the_spool_could_not_keep_is_not_measured(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session.spool, "trouble", lambda: "the spool is full")
    with pytest.raises(InfrastructureError, match="the spool is full"):
        session.run()
    assert (session.booted, session.lab.boots) == ([], {})

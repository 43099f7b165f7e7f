"""The QEMU driver without QEMU: which trouble is the kernel's and which is ours."""

import io
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tidemark_agent.assignment import SessionJob, read_assignment
from tidemark_agent.boot.driver import BootOutcome
from tidemark_agent.boot.qemu import QemuDriver
from tidemark_agent.errors import InfrastructureError
from tidemark_agent.log import Log
from tidemark_agent.process import Finished

from tests.agent.test_console import COPY, FAULT, KERNEL, NONCE, good_boot
from tests.agent.test_run import session_assignment


class Usage(NamedTuple):
    free: int


class Emulator:
    """Stands in for the program: says `lines` on the console and ends well."""

    def __init__(self, lines: list[str], work: Path) -> None:
        self.lines = lines
        self.work = work
        self.commands: list[Sequence[str]] = []

    def run(self, words: Sequence[str], **_options: Any) -> Finished:
        self.commands.append(words)
        nonce = next(word for word in words if "tidemark.nonce=" in word).rpartition("=")[2]
        (self.work / "console").write_text("\n".join(self.lines).replace(NONCE, nonce))
        return Finished(code=0, timed_out=False, seconds=1.0)


def boot(
    monkeypatch: pytest.MonkeyPatch,
    emulator: Emulator,
    *,
    free: int = 10**12,
    sandbox: bool = True,
    has_bwrap: bool = True,
) -> BootOutcome:
    monkeypatch.setattr("tidemark_agent.boot.qemu.run", emulator.run)
    monkeypatch.setattr("tidemark_agent.boot.qemu.is_sandbox_usable", lambda *_: has_bwrap)
    monkeypatch.setattr("tidemark_agent.disk.shutil.disk_usage", lambda _: Usage(free))
    driver = QemuDriver(
        options={"cpu": "Haswell"},
        clock="instructions",
        sandbox=sandbox,
        timeout_seconds=30,
        image={KERNEL.image: emulator.work / "image"},
        initramfs=emulator.work / "initramfs",
        tsc_khz=1_000_000,
        work=emulator.work,
        log=Log(io.StringIO()),
        stop=threading.Event(),
    )
    return driver.boot(KERNEL, [FAULT, COPY])


@pytest.mark.parametrize(("free", "outcome"), [(10**9, "no-boot"), (10**6, "infrastructure")])
def test_console_that_broke_off_on_a_full_disk_is_not_the_kernels_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, outcome: str
) -> None:
    found = boot(monkeypatch, Emulator(["[    0.000000] Linux version 6.1.192"], tmp_path), free=free)
    assert found.outcome == outcome
    assert ("no disk space left" in found.reason) == (outcome == "infrastructure")


def test_boot_that_was_measured_stands_on_a_full_disk_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert boot(monkeypatch, Emulator(good_boot(), tmp_path), free=0).outcome == "measured"


def test_emulator_never_runs_outside_a_sandbox_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    emulator = Emulator(good_boot(), tmp_path)
    found = boot(monkeypatch, emulator, has_bwrap=False)
    assert (found.outcome, emulator.commands) == ("infrastructure", [])
    assert "bwrap" in found.reason
    assert boot(monkeypatch, emulator, has_bwrap=False, sandbox=False).outcome == "measured"


@pytest.mark.parametrize(
    ("fields", "sandbox"), [({}, True), ({"sandbox": "bwrap"}, True), ({"sandbox": "none"}, False)]
)
def test_session_is_in_a_sandbox_unless_the_server_says_otherwise(fields: dict[str, Any], sandbox: bool) -> None:
    job = read_assignment(session_assignment("session-1-1", **fields)).job
    assert isinstance(job, SessionJob)
    assert job.sandbox is sandbox


def test_unknown_kind_of_sandbox_is_not_taken_for_none() -> None:
    with pytest.raises(InfrastructureError, match="firejail"):
        read_assignment(session_assignment("session-1-1", sandbox="firejail"))

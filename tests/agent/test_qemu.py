"""The QEMU driver without QEMU: which trouble is the kernel's and which is ours."""

import io
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tidemark_agent.boot.driver import BootOutcome
from tidemark_agent.boot.qemu import QemuDriver
from tidemark_agent.errors import InfrastructureError, StoppedError
from tidemark_agent.log import Log
from tidemark_agent.system.process import Finished
from tidemark_agent.wire.assignment import SessionJob, read_assignment

from tests.agent.test_console import COPY, FAULT, KERNEL, NONCE, good_boot
from tests.agent.test_run import session_assignment


class Usage(NamedTuple):
    free: int


class Emulator:
    """Stands in for the program: says `lines` on the console and ends well."""

    def __init__(self, lines: list[str], work: Path, *, code: int = 0, said: str = "") -> None:
        self.lines = lines
        self.code = code
        self.said = said
        self.work = work
        self.commands: list[Sequence[str]] = []

    def run(self, words: Sequence[str], **_options: Any) -> Finished:
        self.commands.append(words)
        nonce = next(word for word in words if "tidemark.nonce=" in word).rpartition("=")[2]
        (self.work / "console").write_text("\n".join(self.lines).replace(NONCE, nonce))
        (self.work / "emulator.log").write_text(self.said)
        return Finished(code=self.code, timed_out=False, seconds=1.0)


def broken_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> BootOutcome:
    """The boot of a real room in which a shell script, which gets the console's path, stands for the emulator."""
    (tmp_path / "script").write_text(script)
    (tmp_path / "initramfs").touch()
    (tmp_path / "work").mkdir(exist_ok=True)
    monkeypatch.setattr(QemuDriver, "_words", lambda _self, image, _initramfs, console, _nonce: ["sh", image, console])
    monkeypatch.setattr("tidemark_agent.system.process._STOP_SECONDS", 0.1)
    driver = QemuDriver(
        arch="x86_64",
        options={},
        clock="instructions",
        sandbox=True,
        timeout_seconds=30,
        image={KERNEL.image: tmp_path / "script"},
        initramfs=tmp_path / "initramfs",
        tsc_khz=None,
        work=tmp_path / "work",
        log=Log(io.StringIO()),
        stop=threading.Event(),
    )
    return driver.boot(KERNEL, [FAULT, COPY])


def boot(
    monkeypatch: pytest.MonkeyPatch,
    emulator: Emulator,
    *,
    free: int = 10**12,
    sandbox: bool = True,
    has_bwrap: bool = True,
    arch: str = "x86_64",
    clock: str = "instructions",
    stop: threading.Event | None = None,
) -> BootOutcome:
    monkeypatch.setattr("tidemark_agent.boot.qemu.run", emulator.run)
    trouble = "" if has_bwrap else "bwrap is missing"
    monkeypatch.setattr("tidemark_agent.boot.qemu.sandbox_trouble", lambda *_: trouble)
    monkeypatch.setattr("tidemark_agent.system.disk.shutil.disk_usage", lambda _: Usage(free))
    driver = QemuDriver(
        arch=arch,
        options={"cpu": "Haswell"},
        clock=clock,
        sandbox=sandbox,
        timeout_seconds=30,
        image={KERNEL.image: emulator.work / "image"},
        initramfs=emulator.work / "initramfs",
        tsc_khz=1_000_000 if arch == "x86_64" else None,
        work=emulator.work,
        log=Log(io.StringIO()),
        stop=stop or threading.Event(),
    )
    monkeypatch.setattr("tidemark_agent.system.process._STOP_SECONDS", 0.5)
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


@pytest.mark.parametrize("lines", [["[    0.000000] Linux version 6.1.192"], good_boot()[:-2]])
@pytest.mark.parametrize(("code", "said"), [(0, "qemu: terminating on signal 15 from pid 1 (java)"), (143, "")])
def test_emulator_that_was_told_to_end_says_nothing_about_its_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[str], code: int, said: str
) -> None:
    assert boot(monkeypatch, Emulator(lines, tmp_path, code=code, said=said)).outcome == "infrastructure"


def test_boot_that_broke_off_waits_for_the_stop_that_may_have_ended_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = threading.Event()
    threading.Timer(0.1, stop.set).start()
    with pytest.raises(StoppedError):
        boot(monkeypatch, Emulator(["[    0.000000] Linux version 6.1.192"], tmp_path), stop=stop)


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


def test_each_architecture_has_its_emulator_console_and_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    emulator = Emulator(good_boot(), tmp_path)
    for arch in ("x86_64", "arm64"):
        assert boot(monkeypatch, emulator, sandbox=False, has_bwrap=False, arch=arch).outcome == "measured"
    x86, arm = (list(words) for words in emulator.commands)
    assert (x86[0], arm[0]) == ("qemu-system-x86_64", "qemu-system-aarch64")
    assert arm[arm.index("-M") + 1] == "virt,dtb-randomness=off"
    assert "console=ttyAMA0" in arm[arm.index("-append") + 1]
    assert "tsc" not in arm[arm.index("-append") + 1]
    assert "-icount" in arm


def test_seeds_are_random_where_time_is_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    emulator = Emulator(good_boot(), tmp_path)
    boot(monkeypatch, emulator, arch="arm64", clock="wall")
    words = list(emulator.commands[0])
    assert "virt" in words
    assert "-icount" not in words


def test_architecture_that_cannot_be_emulated_is_our_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = boot(monkeypatch, Emulator(good_boot(), tmp_path), arch="riscv64")
    assert (found.outcome, found.reason) == ("infrastructure", "this agent cannot emulate riscv64")


def test_session_without_architecture_is_one_of_an_older_service() -> None:
    job = read_assignment(session_assignment("session-1-1")).job
    assert isinstance(job, SessionJob)
    assert (job.arch, job.perf) == ("x86_64", "")


@pytest.mark.parametrize("replace", ["ln -s {secret}", "mkfifo"], ids=["link", "pipe"])
@pytest.mark.parametrize("name", ["console", "emulator.log"])
def test_emulator_that_was_broken_out_of_replaces_no_file_that_the_agent_reads_or_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replace: str, name: str
) -> None:
    secret = tmp_path / "token"
    secret.write_text("tm_secret")
    place = f'"$(dirname "$1")/{name}"'
    script = f'echo seen >"$1"\nrm -f {place}\n{replace.format(secret=secret)} {place}\nexit 3\n'
    # What the first boot leaves lies in the way of the second one.
    for _ in range(2):
        found = broken_out(tmp_path, monkeypatch, script)
        assert found.outcome == "infrastructure"
        assert found.reason.startswith("the emulator ended with 3: ")
        assert found.console_tail == "seen\n"
        assert "tm_secret" not in found.reason
    assert secret.read_text() == "tm_secret"


def test_emulator_that_was_broken_out_of_fills_no_folder_of_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken_out(tmp_path, monkeypatch, 'for n in 1 2 3; do echo x >"$(dirname "$1")/f$n"; done\n')
    assert {path.name for path in (tmp_path / "work").iterdir()} <= {"console", "emulator.log"}

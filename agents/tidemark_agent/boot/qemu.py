"""The boot driver for virtual machines: each boot is one run of the QEMU emulator, from power-on to reset.

Pure emulation (TCG), since the kernel under test must not depend on what the host's hardware offers. With the clock
`instructions` each guest instruction takes one nanosecond, so a boot is deterministic whatever else the host does.
"""

import re
import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from tidemark_agent.assignment import KernelImage, PlannedCase
from tidemark_agent.boot.console import read_console
from tidemark_agent.boot.driver import BootOutcome
from tidemark_agent.boot.emulators import Emulator, emulator_of
from tidemark_agent.boot.verdict import Verdict, judge_boot
from tidemark_agent.disk import is_nearly_full, read_strange
from tidemark_agent.errors import InfrastructureError, file_trouble
from tidemark_agent.log import Log
from tidemark_agent.process import Finished, heed_stop, run
from tidemark_agent.sandbox import Bind, Sandbox, sandbox_trouble

_HYPERVISOR = "qemu-tcg"
_CPU = re.compile(r"[A-Za-z0-9][A-Za-z0-9._,+=-]{0,200}")
_SMALLEST_MB, _LARGEST_MB = 128, 65536
_DEFAULT_MB = 512
_LARGEST_CONSOLE = 32 * 1024**2
_KILLED_BY_FILE_LIMIT = 128 + 25
_LARGEST_MESSAGES = 1024**2
_CONSOLE = "/console"
# What the emulator prints when a signal ends it.
_ENDED = "terminating on signal"


@dataclass(frozen=True)
class QemuDriver:
    """Boots kernels in an emulated machine of one CPU; with `sandbox` never outside of one."""

    arch: str
    options: Mapping[str, Any]
    clock: str
    sandbox: bool
    timeout_seconds: float
    image: Mapping[str, Path]
    initramfs: Path
    tsc_khz: int | None
    work: Path
    log: Log
    stop: threading.Event

    def boot(self, kernel: KernelImage, cases: Sequence[PlannedCase]) -> BootOutcome:
        """One boot; whatever goes wrong is an outcome, except StoppedError."""
        started = datetime.now(UTC)
        # Unique for each boot. It is also what makes boot_id unique where the emulator hands the guest no seed: the
        # kernel stirs its command line into its random numbers.
        nonce = secrets.token_hex(16)
        tail = ""
        try:
            with self._new_console() as stream:
                done = self._run(kernel, nonce)
                stream.seek(0)
                console = read_console(stream.read(_LARGEST_CONSOLE), nonce)
            tail = console.tail
            verdict = self._early_verdict(done) or judge_boot(
                console, kernel=kernel, cases=cases, timed_out=done.timed_out, hypervisor=_HYPERVISOR, clock=self.clock
            )
            if verdict.outcome != "measured" and not done.timed_out:
                heed_stop(self.stop)
            if verdict.outcome != "measured" and is_nearly_full(self.work):
                # The emulator drops what its console file has no room for, and ends as if all were well.
                verdict = Verdict("infrastructure", "no disk space left for the boot")
        except InfrastructureError as error:
            verdict = Verdict("infrastructure", str(error))
        except OSError as error:
            verdict = Verdict("infrastructure", file_trouble(error))
        return BootOutcome(
            outcome=verdict.outcome,
            reason=verdict.reason,
            started_at=started,
            ended_at=datetime.now(UTC),
            boot_id=verdict.boot_id,
            build_id=verdict.build_id,
            facts=verdict.facts,
            console_tail=tail,
            measurements=verdict.measurements,
            notes=verdict.notes,
        )

    @property
    def _console(self) -> Path:
        return self.work / "console"

    @property
    def _messages(self) -> Path:
        return self.work / "emulator.log"

    def _new_console(self) -> BinaryIO:
        """The file of the console, opened before the emulator runs: what may take its name later is not looked at."""
        self._console.unlink(missing_ok=True)
        return self._console.open("x+b")

    def _run(self, kernel: KernelImage, nonce: str) -> Finished:
        image = self.image[kernel.image]
        trouble = sandbox_trouble(self.work, self.stop)
        if not trouble:
            room = Sandbox(
                # An emulator that its guest has broken out of can write into this one file, and replace nothing.
                binds=(
                    Bind(self._console, _CONSOLE, writable=True),
                    Bind(image, "/image"),
                    Bind(self.initramfs, "/initramfs"),
                ),
                environment={"PATH": "/usr/local/bin:/usr/bin:/bin"},
            )
            words = room.wrap(self._words("/image", "/initramfs", _CONSOLE, nonce))
        elif self.sandbox:
            raise InfrastructureError(f"the emulator needs a sandbox: {trouble}")
        else:
            self.log.warning("emulator-without-sandbox", reason=trouble)
            words = self._words(str(image), str(self.initramfs), str(self._console), nonce)
        return run(
            words, output=self._messages, timeout=self.timeout_seconds, stop=self.stop, file_limit=_LARGEST_CONSOLE
        )

    def _words(self, image: str, initramfs: str, console: str, nonce: str) -> list[str]:
        emulator, counted = emulator_of(self.arch), self.clock == "instructions"
        return [
            emulator.program,
            *("-M", emulator.machine + (emulator.counted_machine if counted else "")),
            *("-accel", "tcg", "-cpu", _cpu(self.options), "-smp", "1", "-m", str(_memory_mb(self.options))),
            *(("-icount", "shift=0,sleep=off") if counted else ()),
            *("-nodefaults", "-no-user-config", "-display", "none", "-nic", "none", "-no-reboot"),
            *("-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"),
            *("-serial", f"file:{console}", "-kernel", image, "-initrd", initramfs),
            *("-append", self._command_line(emulator, nonce)),
        ]

    def _command_line(self, emulator: Emulator, nonce: str) -> str:
        words = [emulator.command_line]
        if self.clock == "instructions":
            words.append(emulator.counted_command_line)
        if self.tsc_khz is not None:
            words.append(f"tsc_early_khz={self.tsc_khz}")
        return " ".join([*words, f"tidemark.nonce={nonce}"])

    def _early_verdict(self, done: Finished) -> Verdict | None:
        """An end of the emulator itself that says nothing about the kernel, or all there is to say."""
        if done.timed_out:
            return None
        said = self._said()
        if done.was_told_to_end or _ENDED in said:
            # It ends as if all were well. The guest writes nothing into these messages.
            return Verdict("infrastructure", "the emulator was told to end from outside")
        if done.code == 0:
            return None
        if done.code == _KILLED_BY_FILE_LIMIT:
            return Verdict("timeout", f"the console ran over: more than {_LARGEST_CONSOLE // 1024**2} MiB")
        return Verdict("infrastructure", f"the emulator ended with {done.code}: {said[-300:]}")

    def _said(self) -> str:
        said = read_strange(self._messages.parent, self._messages.name, _LARGEST_MESSAGES)
        return said.decode("utf-8", errors="replace").strip()


def _cpu(options: Mapping[str, Any]) -> str:
    cpu = str(options.get("cpu", ""))
    if not _CPU.fullmatch(cpu):
        raise InfrastructureError(f"the machine's option cpu is {cpu!r}")
    return cpu


def _memory_mb(options: Mapping[str, Any]) -> int:
    value = options.get("memory_mb", _DEFAULT_MB)
    if not isinstance(value, int) or not _SMALLEST_MB <= value <= _LARGEST_MB:
        raise InfrastructureError(f"the machine's option memory_mb is {value!r}")
    return value

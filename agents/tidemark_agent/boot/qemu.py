"""The qemu boot driver: what a guest is booted with, for which emulator, and the boot."""

import gzip
import hashlib
import platform
import re
import secrets
import stat
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Final

from tidemark_agent.benchmarks.bundle import Benchmark
from tidemark_agent.benchmarks.description import DEFAULT_COMMAND
from tidemark_agent.boot.console import Note, Verdict, judge_boot, read_console
from tidemark_agent.boot.driver import BootOutcome
from tidemark_agent.errors import InfrastructureError, file_trouble
from tidemark_agent.log import Log
from tidemark_agent.system.disk import is_nearly_full, read_strange
from tidemark_agent.system.process import Finished, capture, heed_stop, run
from tidemark_agent.system.sandbox import Bind, Sandbox, sandbox_trouble
from tidemark_agent.version import bundle_root
from tidemark_agent.wire.assignment import KernelImage, PlannedCase

# How each architecture is emulated: a machine of one CPU with a serial console, and what its kernel must be told.
#
# panic=-1: a kernel that ends, well or not, resets the machine, which ends the emulator. An oops ends the boot too:
# what a damaged kernel measures is worth nothing. The early console shows what dies before the real one is there.


@dataclass(frozen=True)
class Emulator:
    """`counted_...` is added where instructions are counted: what is random would be noise where all else is exact."""

    program: str
    machine: str
    command_line: str
    counted_machine: str = ""
    counted_command_line: str = "norandmaps"


_EMULATORS: Final = {
    "x86_64": Emulator(
        program="qemu-system-x86_64",
        machine="microvm,isa-serial=on,rtc=on,pit=on,pic=on,auto-kernel-cmdline=off",
        # tsc=reliable: else a busy host makes the kernel distrust the emulated TSC and fall back to jiffies.
        # nolapic_timer: calibrating the local APIC timer spins for 200 ms of guest time, which takes 9 s of wall time
        # when instructions are counted; the PIT serves as well.
        command_line=(
            "console=ttyS0 earlyprintk=serial,ttyS0,115200 reboot=t panic=-1 oops=panic "
            "tsc=reliable nolapic_timer no_timer_check"
        ),
    ),
    "arm64": Emulator(
        program="qemu-system-aarch64",
        machine="virt",
        command_line="console=ttyAMA0 earlycon panic=-1 oops=panic",
        # The seeds for the kernel's own address and for its random numbers, which the device tree hands over.
        counted_machine=",dtb-randomness=off",
    ),
}


def emulator_of(arch: str) -> Emulator:
    """Raises InfrastructureError for an architecture that this agent cannot emulate."""
    if arch not in _EMULATORS:
        raise InfrastructureError(f"this agent cannot emulate {arch}")
    return _EMULATORS[arch]


_MAGIC = "070701"
_TRAILER = "TRAILER!!!"


@dataclass(frozen=True)
class Entry:
    """One file of the archive; `mode` tells its type too, `device` is (major, minor) of a device node."""

    name: str
    mode: int
    content: bytes = b""
    device: tuple[int, int] = (0, 0)


def directory(name: str) -> Entry:
    return Entry(name, stat.S_IFDIR | 0o755)


def plain_file(name: str, content: bytes) -> Entry:
    return Entry(name, stat.S_IFREG | 0o644, content)


def program(name: str, content: bytes) -> Entry:
    return Entry(name, stat.S_IFREG | 0o755, content)


def character_device(name: str, major: int, minor: int) -> Entry:
    return Entry(name, stat.S_IFCHR | 0o600, device=(major, minor))


def write_archive(entries: list[Entry]) -> bytes:
    """The archive with `entries` in their order, owned by root, dated 1970."""
    parts = [_record(number, entry) for number, entry in enumerate(entries, start=1)]
    parts.append(_record(0, Entry(_TRAILER, 0)))
    archive = b"".join(parts)
    return archive + b"\0" * (-len(archive) % 512)


def _record(number: int, entry: Entry) -> bytes:
    name = entry.name.encode() + b"\0"
    links = 2 if stat.S_ISDIR(entry.mode) else 1
    # ino mode uid gid nlink mtime filesize devmajor devminor rdevmajor rdevminor namesize check
    numbers = (number, entry.mode, 0, 0, links, 0, len(entry.content), 0, 0, *entry.device, len(name), 0)
    header = (_MAGIC + "".join(f"{value:08x}" for value in numbers)).encode()
    return _padded(header + name) + _padded(entry.content)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)


INIT_SOURCE = "boot/init.c"


def build_initramfs(cases: Sequence[PlannedCase], programs: Mapping[str, bytes], *, init: bytes) -> bytes:
    """The compressed archive that runs `cases` in their order; `programs` by benchmark name. Same input, same bytes."""
    lines = [f"{case.timeout_seconds} /benchmarks/{case.benchmark} {case.case} {case.runs}\n" for case in cases]
    entries: list[Entry] = [
        *(directory(name) for name in ("dev", "proc", "sys", "tmp", "benchmarks")),
        character_device("dev/console", 5, 1),
        character_device("dev/null", 1, 3),
        program("init", init),
        plain_file("cases", "".join(lines).encode()),
        *(program(f"benchmarks/{name}", content) for name, content in sorted(programs.items())),
    ]
    return gzip.compress(write_archive(entries), compresslevel=1, mtime=0)


# The frequency of the time stamp counter that an emulated machine sees.
#
# A kernel finds it out by timing it against the emulated PIT, which on a busy host fails or comes out wrong. So it is
# told: counted instructions make exactly 1 GHz, and plain emulation passes the host's counter on.

COUNTED_KHZ = 1_000_000
_COMPILE_SECONDS = 60.0
_MEASURE_SECONDS = 10.0


def host_tsc_khz(cache: Path, stop: threading.Event) -> int | None:
    """The host's frequency, measured now; None on hosts that have no such counter."""
    if platform.machine() != "x86_64":
        return None
    source = (bundle_root() / "tidemark_agent" / "boot" / "host_tsc.c").read_bytes()
    program = cache / f"host-tsc-{hashlib.sha256(source).hexdigest()[:16]}"
    if not program.is_file():
        text = cache / f"{program.name}.{threading.get_native_id()}.c"
        made = text.with_suffix(".making")
        text.write_bytes(source)
        try:
            command = ["cc", "-O2", "-o", str(made), str(text)]
            capture(command, scratch=cache, timeout=_COMPILE_SECONDS, stop=stop)
            made.replace(program)
        finally:
            text.unlink()
    said = capture([str(program)], scratch=cache, timeout=_MEASURE_SECONDS, stop=stop).strip()
    if not said.isdigit() or int(said) == 0:
        raise InfrastructureError(f"the host's TSC cannot be measured: {said[:100]!r}")
    return int(said)


_REASON = "needs an agent inside the machine, which the driver qemu does not have"


def split_cases(
    cases: Sequence[PlannedCase], benchmarks: Mapping[str, Benchmark]
) -> tuple[tuple[PlannedCase, ...], tuple[Note, ...]]:
    """The cases that can run as a static program that prints JSON lines, and a note for each of the others."""
    able = tuple(case for case in cases if is_static_program(benchmarks[case.benchmark], case.case))
    others = [case for case in cases if case not in able]
    return able, tuple(Note(case.benchmark, case.case, "skipped", _REASON) for case in others)


def is_static_program(benchmark: Benchmark, name: str) -> bool:
    """Whether the case is one process of a program made from the folder, called `PROGRAM CASE RUNS`.

    Settings would have to be made by an agent, and so would needs be looked at.
    """
    case = benchmark.cases.get(name)
    return (
        benchmark.program.kind == "compiled"
        and case is not None
        and case.command == DEFAULT_COMMAND
        and not case.settings
        and not case.needs
    )


# The boot driver for virtual machines: each boot is one run of the QEMU emulator, from power-on to reset.
#
# Pure emulation (TCG), since the kernel under test must not depend on what the host's hardware offers. With the clock
# `instructions` each guest instruction takes one nanosecond, so a boot is deterministic whatever else the host does.

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

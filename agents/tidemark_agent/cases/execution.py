"""Running one command of a case in a folder of its own, within its limits."""

import contextlib
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidemark_agent.benchmarks.description import parse_cpus
from tidemark_agent.cases.programs import CaseEndedError, StuckError
from tidemark_agent.errors import InfrastructureError
from tidemark_agent.system.disk import StrangeFileError, read_strange
from tidemark_agent.system.process import Finished, clean_environment, heed_stop, run
from tidemark_agent.system.text import LONGEST_REASON, clean_text, error_text, last_bytes
from tidemark_agent.version import bundle_root

# The directories that a case works in, below the agent's state: `cases/scratch-...` and `cases/kept/...`.
#
# Scratch is new for each case and gone after it. What is kept belongs to one benchmark in one boot (an unpacked
# source tree, say). What another boot left is removed when it is met, and what an agent left that was killed in this
# one a day later: a session with a power cut in each boot would fill the disk else.

_FORGOTTEN_SECONDS = 24 * 3600
# The unit of st_blocks, whatever the file system's own blocks are.
_BLOCK_BYTES = 512


@contextlib.contextmanager
def scratch_directory(state: Path, root: Path) -> Iterator[Path]:
    """A new empty directory, removed with all that is in it at the end."""
    base, ours = state / "cases", f"scratch-{_boot(root)}-"
    base.mkdir(parents=True, exist_ok=True)
    _forget_old(base, ours)
    path = Path(tempfile.mkdtemp(prefix=ours, dir=base))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def kept_directory(state: Path, name: str, root: Path) -> Path:
    """The directory that `name` keeps while this boot lasts; those of other boots are removed."""
    boot = _boot(root)
    base = state / "cases" / "kept"
    path = base / f"{name}-{boot}"
    path.mkdir(parents=True, exist_ok=True)
    for other in base.iterdir():
        if not other.name.endswith(f"-{boot}"):
            shutil.rmtree(other, ignore_errors=True)
    return path


def size_of(*directories: Path) -> int:
    """Bytes that the files below `directories` take on the disk, as far as they can be seen."""
    return sum(about.st_blocks * _BLOCK_BYTES for about in _files(directories))


def file_sizes(*directories: Path) -> Iterator[int]:
    """The length of each file below `directories` that can be seen."""
    return (about.st_size for about in _files(directories))


def _files(directories: Iterable[Path]) -> Iterator[os.stat_result]:
    """What there is below `directories`, while a program may be making and removing it."""
    for directory in directories:
        for folder, _, names in os.walk(directory):
            for name in names:
                with contextlib.suppress(OSError):
                    yield Path(folder, name).lstat()


def _boot(root: Path) -> str:
    return (root / "proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()[:8]


def _forget_old(base: Path, ours: str) -> None:
    """In this boot another agent may be running a case by hand; in an earlier one nobody is any more."""
    for path in base.glob("scratch-*"):
        with contextlib.suppress(OSError):
            is_old = path.stat().st_mtime < time.time() - _FORGOTTEN_SECONDS
            if is_old or not path.name.startswith(ours):
                shutil.rmtree(path, ignore_errors=True)


EVIDENCE_BYTES = 2048
_MIB = 1024**2
_LARGEST_OUTPUT = 4 * _MIB
# The least that is left free for the agent's own journal and spool.
_DISK_RESERVE = 128 * _MIB
_EXEC_FAILED = 127
_LARGEST_REPORT = 64 * 1024
# Each look wakes the agent while something is measured; the end of the program is seen without it.
_PAUSE_SECONDS = 0.5
_SIGXFSZ = 25


@dataclass
class Limits:
    """What a process may use. `disk_bytes` is for all that it writes below its directories, and for one file."""

    seconds: float
    disk_bytes: int
    directories: tuple[Path, ...]
    why: str = ""
    outcome: str = ""
    _free: int = field(default=0, init=False)

    def start(self) -> None:
        self._free = shutil.disk_usage(self.directories[0]).free

    def is_over(self, output: Path) -> bool:
        """Whether the process must end now; `outcome` and `why` then say for what."""
        if output.lstat().st_size > _LARGEST_OUTPUT:
            self.outcome, self.why = "garbled", f"printed more than {_LARGEST_OUTPUT // _MIB} MiB"
            return True
        free = shutil.disk_usage(self.directories[0]).free
        # Looking at all files costs time, so it waits until the disk as a whole has lost that much.
        if self._free - free > self.disk_bytes and size_of(*self.directories) > self.disk_bytes:
            self.outcome, self.why = "failed", self.too_much
            return True
        if free < _DISK_RESERVE < self._free:
            lost, own = (self._free - free) // _MIB, size_of(*self.directories) // _MIB
            # Most of it may be somebody else's, who writes to the same disk.
            self.outcome = "failed" if 2 * own > lost else "infrastructure"
            self.why = f"the disk ran full: {lost} MiB less than before, of which {own} MiB are the case's own files"
            return True
        return False

    def has_full_file(self) -> bool:
        """Whether a file is as long as one may get; its writer was told so, and may have ended for that."""
        return any(size >= self.disk_bytes for size in file_sizes(*self.directories))

    @property
    def too_much(self) -> str:
        return f"wrote more than {self.disk_bytes // _MIB} MiB"


@dataclass(frozen=True)
class Execution:
    """What a process printed (cleaned), and what launch.py says about its end; `report` is empty if it was killed."""

    text: str
    finished: Finished
    report: Mapping[str, Any]
    oom_kills: int

    @property
    def ended_well(self) -> bool:
        return bool(self.report) and not (self.report["signal"] or self.report["code"])

    @property
    def evidence(self) -> str:
        return last_bytes(self.text, EVIDENCE_BYTES)


@dataclass(frozen=True)
class Executor:
    """Runs processes in `scratch` on `cpus`; what it notes about them is in `control`, out of their way."""

    scratch: Path
    control: Path
    cpus: str
    root: Path
    stop: threading.Event
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: Path | None = None

    def execute(self, argv: Sequence[str], limits: Limits) -> Execution:
        """Run `argv` to a good end; raises CaseEndedError for any other, StoppedError when the agent is to stop."""
        output, report = self.control / "output", self.control / "ended.json"
        report.unlink(missing_ok=True)
        cpus = ",".join(map(str, parse_cpus(self.cpus)))
        words = [sys.executable, "-I", "-S", "-c", _launch_source(), str(report), cpus, *argv]
        before = oom_kills(self.root)
        limits.start()
        finished = run(
            words,
            output=output,
            timeout=limits.seconds,
            stop=self.stop,
            environment=self._environment(),
            directory=self.directory or self.scratch,
            file_limit=limits.disk_bytes,
            over=_watch(limits, output),
            pause=_PAUSE_SECONDS,
        )
        if not limits.outcome:
            # A quick program may have done its worst between two looks.
            limits.is_over(output)
        try:
            text = clean_text(read_strange(output.parent, output.name, _LARGEST_OUTPUT))
        except StrangeFileError as error:
            name = Path(argv[0]).name
            raise CaseEndedError("failed", f"{name} put something else in place of its output") from error
        done = Execution(text, finished, _read_report(report), oom_kills(self.root) - before)
        if finished.is_stuck:
            reason = f"{Path(argv[0]).name} cannot be killed: it hangs in the kernel"
            raise StuckError("timeout" if finished.timed_out else "failed", reason, done.evidence)
        if not done.ended_well and not (limits.outcome or finished.timed_out):
            # Whoever ends the agent may have ended the program first: that is no result of the case.
            heed_stop(self.stop)
        _require_good_end(argv[0], done, limits)
        return done

    def _environment(self) -> dict[str, str]:
        own = {"HOME": str(self.scratch), "TMPDIR": str(self.scratch), "TERM": "dumb", "NO_COLOR": "1"}
        return clean_environment({**self.environment, **own})


def oom_kills(root: Path) -> int:
    """How many processes the kernel has killed for want of memory since it was booted.

    A memory cgroup of the case's own would tell more, but would put the kernel's accounting into what is measured.
    """
    try:
        text = (root / "proc/vmstat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    found = [line.split()[1] for line in text.splitlines() if line.startswith("oom_kill ")]
    return int(found[0]) if found and found[0].isdecimal() else 0


def _require_good_end(program: str, done: Execution, limits: Limits) -> None:
    """Raise what the end of the process was, unless it was a good one."""
    name = Path(program).name
    if done.oom_kills > 0:
        raise CaseEndedError("oom", f"memory ran out: processes killed by the kernel: {done.oom_kills}", done.evidence)
    if limits.outcome:
        raise CaseEndedError(limits.outcome, limits.why, done.evidence)
    if done.finished.timed_out:
        raise CaseEndedError("timeout", f"{name} ran longer than {limits.seconds:.0f} s", done.evidence)
    if not done.report:
        said = done.text.strip()[-LONGEST_REASON:]
        raise InfrastructureError(f"{name} could not be started, or what watches it was killed: {said}")
    signal, code = int(done.report["signal"]), int(done.report["code"])
    if signal == _SIGXFSZ or (code and limits.has_full_file()):
        raise CaseEndedError("failed", limits.too_much, done.evidence)
    if signal:
        raise CaseEndedError("failed", f"{name} was killed by signal {signal}", done.evidence)
    if code == _EXEC_FAILED:
        # Nothing was measured badly: the program, or one that it needs, is not here or not for this machine.
        raise CaseEndedError("infrastructure", f"{name} cannot be run: {done.text.strip()[-LONGEST_REASON:]}")
    if code:
        lines = done.text.strip().split("\n")
        said = error_text(lines) or lines[-1][-LONGEST_REASON:]
        raise CaseEndedError("failed", f"exit status {code}: {said}".rstrip(": "), done.evidence)
    if done.report["left"]:
        left = ", ".join(str(name) for name in done.report["left"])
        raise CaseEndedError("failed", f"left processes running, which were killed: {left}", done.evidence)


def _watch(limits: Limits, output: Path) -> Callable[[], bool]:
    return lambda: limits.is_over(output)


def _read_report(path: Path) -> Mapping[str, Any]:
    """What launch.py wrote; nothing where it was killed before."""
    try:
        report = json.loads(read_strange(path.parent, path.name, _LARGEST_REPORT))
    except (OSError, ValueError):
        return {}
    return report if isinstance(report, dict) and {"code", "signal", "left"} <= set(report) else {}


def _launch_source() -> str:
    return (bundle_root() / "tidemark_agent" / "cases" / "launch.py").read_text(encoding="utf-8")

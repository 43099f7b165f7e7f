"""Running other programs: within limits, with a stop signal, and no child left behind."""

import functools
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidemark_agent.errors import InfrastructureError, KilledError, SlowError, StoppedError, UnfitError
from tidemark_agent.guard.cgroup import memory_trouble
from tidemark_agent.system.disk import open_to_write
from tidemark_agent.version import bundle_root

MIB = 1024**2


@dataclass(frozen=True)
class Limits:
    """0 means no such limit.

    `memory_bytes` and `processes` (threads count, as the kernel counts) are for the whole tree of processes,
    `cpu_seconds` for each process in it, `disk_bytes` for all that is below `directories`.
    """

    memory_bytes: int = 0
    processes: int = 0
    cpu_seconds: int = 0
    disk_bytes: int = 0
    directories: tuple[Path, ...] = ()

    def words(self) -> list[str]:
        """As the guard reads them."""
        numbers = {
            "memory": self.memory_bytes,
            "processes": self.processes,
            "cpu": self.cpu_seconds,
            "disk": self.disk_bytes,
        }
        words = [f"{name}={value}" for name, value in numbers.items() if value]
        return [*words, *(f"directory={path}" for path in self.directories)]


def require_memory_group() -> None:
    """Raise UnfitError unless a memory cgroup would hold what strangers' code takes: nothing else counts all of it."""
    if trouble := memory_trouble():
        help_ = "set MemoryMax= or Delegate= on its unit, or mem_limit on its container (docs/operations/builders.md)"
        raise UnfitError(f"no limit on memory would hold other people's code: {trouble}; {help_}")


_PAUSE_SECONDS = 0.1
# Freeing all of a large machine's memory takes a process this long. One that is still there hangs in the kernel.
_END_SECONDS = 120.0
_NOT_FOUND = 127
_BY_SIGNAL = 128
# Jenkins ends all processes of a build, children first: within a second or two the agent is told itself.
_STOP_SECONDS = 3.0
# The log of a kernel build with every warning there is has 20 MiB.
LOG_BYTES = 64 * MIB
_LONGEST_REPORT = 4096
# Modules of the guard, those first that others need. Their sources travel on its command line: it runs without the
# agent's own files, which may be replaced by newer ones while it runs.
_GUARD_MODULES = (*("guard.orders", "guard.confinement", "guard.cgroup", "guard.watch", "guard.command"),)
_START = """
import sys, types
for name, source in ({sources!r}):
    module = sys.modules[name] = types.ModuleType(name)
    module.__path__ = []
    exec(compile(source, name, "exec"), module.__dict__)
sys.exit(module.main(sys.argv[1:]))
"""


@dataclass(frozen=True)
class Finished:
    """How a program ended; `code` is 128 + N when signal N killed it, -N when it killed the guard that watches it.

    `is_stuck` says that something of it has not ended at all: it was killed, but hangs in the kernel. `over` is what it
    took too much of, for which it was ended, or ""; with `over_is_ours` the host had too little to begin with.
    `cpu_seconds` is what all of it took of the processors, known of commands with limits.
    """

    code: int
    timed_out: bool
    seconds: float
    is_stuck: bool = False
    over: str = ""
    over_is_ours: bool = False
    cpu_seconds: float = 0.0

    @property
    def was_killed(self) -> bool:
        """Whether a signal ended it that the agent did not send."""
        return (self.code > _BY_SIGNAL or self.code < 0) and not (self.timed_out or self.over or self.is_stuck)

    @property
    def was_told_to_end(self) -> bool:
        """Whether that signal was one of those by which whoever runs the agent ends what it has started."""
        told = {_BY_SIGNAL + number for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
        return self.was_killed and self.code in told


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """What children get: nothing of the agent's own environment but the way to programs."""
    path = os.environ.get("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    return {"PATH": path, "LC_ALL": "C", "HOME": "/nonexistent", **(extra or {})}


def run(
    argv: Sequence[str],
    *,
    output: Path,
    timeout: float,
    stop: threading.Event,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
    file_limit: int = 0,
    log_limit: int | None = None,
    limits: Limits | None = None,
    append: bool = False,
    over: Callable[[], bool] | None = None,
    pause: float = _PAUSE_SECONDS,
) -> Finished:
    """Run `argv` to its end with stdout and stderr into `output`.

    It is killed with all it started at the timeout, when `stop` is set (raises StoppedError), when `over` says that
    nothing more is to come, when it takes more than `limits`, and when the agent dies. `stop` and `over` are looked at
    every `pause` seconds; the program's own end is seen at once. `output` grows to `log_limit` bytes, of longer ones
    beginning and end are kept. Where only a `file_limit` is given the program prints into the file itself: nothing
    then wakes up beside a program that is measured, and its file is limited as all others are.
    """
    if log_limit is None:
        log_limit = 0 if file_limit else LOG_BYTES
    orders = [f"file={file_limit}", f"log={log_limit}", *(limits.words() if limits else ())]
    started = time.monotonic()
    flags = os.O_RDWR | (0 if append else os.O_TRUNC)
    log = open_to_write(output, flags | (os.O_APPEND if append and not log_limit else 0))
    try:
        child, lifeline, report = _start_guard(orders, argv, log, environment, directory)
    finally:
        os.close(log)
    try:
        timed_out = _waited_in_vain(child, started + timeout, lambda: stop.is_set() or bool(over and over()), pause)
    finally:
        os.close(lifeline)
        is_stuck = not _has_ended(child)
        cpu_seconds, kind, reason = _read_report(report)
    if stop.is_set():
        raise StoppedError(f"{argv[0]} was ended")
    seconds = time.monotonic() - started
    return Finished(
        code=child.returncode,
        timed_out=timed_out,
        seconds=seconds,
        is_stuck=is_stuck,
        over=reason,
        over_is_ours=kind == "ours",
        cpu_seconds=cpu_seconds,
    )


def _start_guard(
    orders: Sequence[str], argv: Sequence[str], log: int, environment: Mapping[str, str] | None, directory: Path | None
) -> tuple[subprocess.Popen[bytes], int, int]:
    """The guard, the end of its lifeline that keeps it going, and the pipe with its report."""
    lifeline, keep = os.pipe()
    reading, report = os.pipe()
    words = [f"lifeline={lifeline}", f"report={report}", *orders, "--", *argv]
    try:
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _guard_source(), *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=clean_environment() if environment is None else dict(environment),
            cwd=directory,
            pass_fds=[lifeline, report],
            start_new_session=True,
        )
    except OSError:
        os.close(keep)
        os.close(reading)
        raise
    finally:
        os.close(lifeline)
        os.close(report)
    return child, keep, reading


def _read_report(report: int) -> tuple[float, str, str]:
    """What the guard wrote before it ended (guard/orders.py); nothing of one that hangs or was killed."""
    os.set_blocking(report, False)
    try:
        text = os.read(report, _LONGEST_REPORT).decode("utf-8", errors="replace")
    except BlockingIOError:
        text = ""
    finally:
        os.close(report)
    cpu_seconds, _, over = text.partition(" ")
    kind, _, reason = over.partition(" ")
    return float(cpu_seconds or 0), kind, reason


def _has_ended(guard: subprocess.Popen[bytes]) -> bool:
    """Wait until the guard has ended all that it watches; without it, should that not come to an end."""
    if not _waited_in_vain(guard, time.monotonic() + _END_SECONDS, lambda: False, _END_SECONDS):
        guard.wait()
        return True
    guard.kill()
    guard.wait()
    return False


def _waited_in_vain(child: subprocess.Popen[bytes], deadline: float, is_over: Callable[[], bool], pause: float) -> bool:
    """Sleep until the child ends, `is_over` or the deadline (monotonic) comes; whether it was the deadline.

    Waiting for a descriptor wakes the agent when something happens; Popen.wait with a timeout looks 20 times a second.
    """
    ended = os.pidfd_open(child.pid)
    try:
        poll = select.poll()
        poll.register(ended, select.POLLIN)
        while not is_over():
            left = deadline - time.monotonic()
            if left <= 0:
                return True
            if poll.poll(1000 * min(pause, left)):
                return False
    finally:
        os.close(ended)
    return False


def heed_stop(stop: threading.Event) -> None:
    """After a program that ended as it should not have: raise StoppedError if a stop comes that ended it, too.

    Whoever ends a build of Jenkins ends the children first, so what they say then is no verdict on anything.
    """
    if stop.wait(_STOP_SECONDS):
        raise StoppedError("the work was ended from outside")


def capture(
    argv: Sequence[str],
    *,
    scratch: Path,
    timeout: float,
    stop: threading.Event,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
    file_limit: int = 0,
) -> str:
    """The output of a program that must succeed, as text; see `capture_bytes`."""
    output = capture_bytes(
        argv,
        scratch=scratch,
        timeout=timeout,
        stop=stop,
        environment=environment,
        directory=directory,
        file_limit=file_limit,
    )
    return output.decode("utf-8", errors="replace")


def capture_bytes(
    argv: Sequence[str],
    *,
    scratch: Path,
    timeout: float,
    stop: threading.Event,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
    file_limit: int = 0,
) -> bytes:
    """The output of a program that must succeed; its last lines are the reason of the InfrastructureError if not.

    None of its files may be larger than `file_limit` bytes. KilledError, which is one, where something outside ended
    the program, and no stop came after it; SlowError where it did not end.
    """
    output = scratch / f"output-{os.getpid()}-{threading.get_ident()}"
    try:
        done = run(
            argv,
            output=output,
            timeout=timeout,
            stop=stop,
            environment=environment,
            directory=directory,
            file_limit=file_limit,
        )
        content = output.read_bytes()
    finally:
        output.unlink(missing_ok=True)
    if done.is_stuck:
        raise InfrastructureError(f"{argv[0]} cannot be killed: it hangs in the kernel")
    if done.timed_out:
        raise SlowError(f"{argv[0]} did not end within {timeout:.0f} s")
    if done.code == _NOT_FOUND:
        raise InfrastructureError(f"{argv[0]} cannot be run: {_end_of(content, 300)}")
    said = f"{argv[0]} failed with {done.code}: {_end_of(content, 500)}"
    if done.was_killed:
        heed_stop(stop)
        raise KilledError(said)
    if done.code != 0:
        raise InfrastructureError(said)
    return content


def _end_of(content: bytes, most: int) -> str:
    return content.decode("utf-8", errors="replace").strip()[-most:]


@functools.cache
def _guard_source() -> str:
    root = bundle_root() / "tidemark_agent"
    sources = [("tidemark_agent", ""), ("tidemark_agent.guard", "")]
    for name in _GUARD_MODULES:
        source = (root / f"{name.replace('.', '/')}.py").read_text(encoding="utf-8")
        sources.append((f"tidemark_agent.{name}", source))
    return _START.format(sources=sources)

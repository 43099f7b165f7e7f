"""Running other programs: with a time limit, a stop signal, and no child left behind."""

import functools
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidemark_agent.errors import InfrastructureError, StoppedError
from tidemark_agent.version import bundle_root

_PAUSE_SECONDS = 0.1
# Freeing all of a large machine's memory takes a process this long. One that is still there hangs in the kernel.
_END_SECONDS = 120.0
_NOT_FOUND = 127


@dataclass(frozen=True)
class Finished:
    """How a program ended; `code` is 128 + N when signal N killed it.

    `is_stuck` says that something of it has not ended at all: it was killed, but hangs in the kernel.
    """

    code: int
    timed_out: bool
    seconds: float
    is_stuck: bool = False


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
    append: bool = False,
    over: Callable[[], bool] | None = None,
    pause: float = _PAUSE_SECONDS,
) -> Finished:
    """Run `argv` to its end with stdout and stderr into `output`.

    It is killed with all it started at the timeout, when `stop` is set (raises StoppedError), when `over` says that
    nothing more is to come, and when the agent dies. `stop` and `over` are looked at every `pause` seconds; the
    program's own end is seen at once.
    """
    reading, writing = os.pipe()
    guard = [sys.executable, "-I", "-S", "-c", _guard_source(), str(reading), str(file_limit), *argv]
    started = time.monotonic()
    try:
        with output.open("ab" if append else "wb") as log:
            child = subprocess.Popen(
                guard,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=clean_environment() if environment is None else dict(environment),
                cwd=directory,
                pass_fds=[reading],
                start_new_session=True,
            )
    except OSError:
        os.close(writing)
        raise
    finally:
        os.close(reading)
    try:
        timed_out = _waited_in_vain(child, started + timeout, lambda: stop.is_set() or bool(over and over()), pause)
    finally:
        os.close(writing)
        is_stuck = not _has_ended(child)
    if stop.is_set():
        raise StoppedError(f"{argv[0]} was ended")
    seconds = time.monotonic() - started
    return Finished(code=child.returncode, timed_out=timed_out, seconds=seconds, is_stuck=is_stuck)


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


def capture(
    argv: Sequence[str],
    *,
    scratch: Path,
    timeout: float,
    stop: threading.Event,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> str:
    """The output of a program that must succeed; its last lines are the reason if it does not."""
    output = scratch / f"output-{os.getpid()}-{threading.get_ident()}"
    try:
        done = run(argv, output=output, timeout=timeout, stop=stop, environment=environment, directory=directory)
        text = output.read_text(encoding="utf-8", errors="replace")
    finally:
        output.unlink(missing_ok=True)
    if done.is_stuck:
        raise InfrastructureError(f"{argv[0]} cannot be killed: it hangs in the kernel")
    if done.timed_out:
        raise InfrastructureError(f"{argv[0]} did not end within {timeout:.0f} s")
    if done.code == _NOT_FOUND:
        raise InfrastructureError(f"{argv[0]} cannot be run: {text.strip()[-300:]}")
    if done.code != 0:
        raise InfrastructureError(f"{argv[0]} failed with {done.code}: {text.strip()[-500:]}")
    return text


@functools.cache
def _guard_source() -> str:
    return (bundle_root() / "tidemark_agent" / "guard.py").read_text(encoding="utf-8")

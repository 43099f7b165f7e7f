"""Advisory file locks, which the kernel frees when their holder dies."""

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from tidemark_agent.errors import StoppedError

_POLL_SECONDS = 0.5
_PROBE_SECONDS = 0.05


def try_lock(path: Path, *, patience: float = 0.0) -> int | None:
    """An open descriptor that holds the lock, or None if another process holds it for all of `patience` (seconds).

    The file then holds this process's id: the dispatcher that started the agent finds there whom to stop.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + patience
    while not _is_ours(descriptor):
        if time.monotonic() >= deadline:
            os.close(descriptor)
            return None
        time.sleep(_PROBE_SECONDS)
    # On a full disk nobody can read who holds it, but held it is: settings of the machine must be put back even then.
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    return descriptor


def is_locked(path: Path) -> bool:
    """Whether somebody holds the lock now."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _is_ours(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def held_lock(path: Path, *, stop: threading.Event) -> Iterator[None]:
    """Wait for the lock and hold it; raises StoppedError when `stop` is set first."""
    while (descriptor := try_lock(path)) is None:
        if stop.wait(_POLL_SECONDS):
            raise StoppedError(f"stopped while waiting for {path.name}")
    try:
        yield
    finally:
        os.close(descriptor)

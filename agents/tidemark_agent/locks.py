"""Advisory file locks, which the kernel frees when their holder dies."""

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidemark_agent.errors import StoppedError

_POLL_SECONDS = 0.5


def try_lock(path: Path) -> int | None:
    """An open descriptor that holds the lock, or None if another process holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


@contextmanager
def held_lock(path: Path, *, stop: threading.Event) -> Iterator[None]:
    """Wait for the lock and hold it; raises StoppedError when `stop` is set first."""
    while (descriptor := try_lock(path)) is None:
        if stop.wait(_POLL_SECONDS):
            raise StoppedError(f"stopped while waiting for {path.name}")
    try:
        yield
    finally:
        os.close(descriptor)

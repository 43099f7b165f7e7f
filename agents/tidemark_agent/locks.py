"""Advisory file locks, which the kernel frees when their holder dies."""

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from tidemark_agent.errors import InfrastructureError, StoppedError

_POLL_SECONDS = 0.5
_PROBE_SECONDS = 0.05
# No agent waits longer to be alone, and what it then runs is one step.
_LONGEST_ALONE = 2 * 3600.0
# What was said of those who are no agents.
_strangers: list[str] = []
# Every host has these for all of its users: a full disk cannot keep them from being made, nor a user from being locked.
_HOST, _QUEUE = Path("/run"), Path("/dev/shm")  # noqa: S108 (nothing is written there)


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


def _is_ours(descriptor: int, how: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
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


@contextlib.contextmanager
def beside_others(*, stop: threading.Event, patience: float = _LONGEST_ALONE) -> Iterator[None]:
    """Share this host with all agents on it, as soon as none of them has it, or waits for it, alone.

    Whoever keeps it for longer than `patience` (seconds) is no agent: every user of the host may lock these folders.
    This process waits for him once.
    """
    deadline = time.monotonic() + (0 if _strangers else patience)
    with contextlib.ExitStack() as held:
        try:
            with _flock(_QUEUE, fcntl.LOCK_SH, stop, deadline):
                held.enter_context(_flock(_HOST, fcntl.LOCK_SH, stop, deadline))
        except InfrastructureError as error:
            _strangers.append(str(error))
        yield


@contextlib.contextmanager
def alone_on_host(*, stop: threading.Event, patience: float) -> Iterator[None]:
    """Wait until nobody shares this host, and let nobody in; raises InfrastructureError after `patience` (seconds)."""
    deadline = time.monotonic() + patience
    with _flock(_QUEUE, fcntl.LOCK_EX, stop, deadline), _flock(_HOST, fcntl.LOCK_EX, stop, deadline):
        yield


@contextlib.contextmanager
def _flock(path: Path, how: int, stop: threading.Event, deadline: float) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while not _is_ours(descriptor, how):
            if time.monotonic() >= deadline:
                raise InfrastructureError("other builds did not leave this host to one that must be alone on it")
            if stop.wait(_POLL_SECONDS):
                raise StoppedError("stopped while waiting for other builds of this host")
        yield
    finally:
        os.close(descriptor)

"""Finding and ending the processes of one stack, and no others.

Every process of a stack carries its directory in the environment variable TIDEMARK_STACK and hands it on to its
children, so processes that lost their parent are found too, and a number that was given to a stranger is not mistaken.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

MARK = "TIDEMARK_STACK"


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that ended and waits for its parent to notice does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] not in {"Z", "X"}


def is_marked(pid: int, local: Path) -> bool:
    """Whether process `pid` belongs to the stack in `local`."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return f"{MARK}={local}".encode() in environment.split(b"\0")


def marked_processes(local: Path) -> list[int]:
    """All living processes of the stack in `local`, except this one and those that wait for it."""
    own = set(_ancestors(os.getpid()))
    return [pid for pid in _all() if pid not in own and is_marked(pid, local) and is_alive(pid)]


def end_marked(local: Path, *, patience: float) -> int:
    """End what is left of the stack in `local`: politely, then after `patience` seconds for certain."""
    found = marked_processes(local)
    _signal_all(found, signal.SIGTERM)
    deadline = time.monotonic() + patience
    while marked_processes(local):
        if time.monotonic() > deadline:
            _signal_all(marked_processes(local), signal.SIGKILL)
        time.sleep(0.05)
    return len(found)


def _signal_all(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _all() -> Iterator[int]:
    for entry in os.listdir("/proc"):  # noqa: PTH208 (pathlib builds an object for each of hundreds of names)
        if entry.isdigit():
            yield int(entry)


def _ancestors(pid: int) -> Iterator[int]:
    while pid > 0:
        yield pid
        try:
            status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return
        pid = int(status.rpartition(")")[2].split()[1])

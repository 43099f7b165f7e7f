"""How Jenkins ends what a build has started: SIGTERM, children before their parents, and never SIGKILL.

As a real agent.jar does it: by one picture of all processes, each is told to end and waited for, and after some
seconds the rest of its tree is told without waiting. So a compiler or an emulator is gone before the program that
started it hears of anything.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

_FIRST_WAIT_SECONDS = 0.01
_LONGEST_WAIT_SECONDS = 1.0
# In /proc/PID/stat, behind the name.
_PARENT = 1


def end_trees(roots: Iterable[int], marks: Mapping[str, str], *, patience: float) -> None:
    """End the trees of these processes, then those of all that bear the marks; `patience` seconds for each tree."""
    families = children_by_parent()
    for root in roots:
        _end_tree(root, families, time.monotonic() + patience)
    families = children_by_parent()
    for pid in marked(marks):
        _end_tree(pid, families, time.monotonic() + patience)


def _end_tree(pid: int, families: Mapping[int, Sequence[int]], deadline: float) -> None:
    for child in families.get(pid, ()):
        _end_tree(child, families, deadline)
    send([pid], signal.SIGTERM)
    wait = _FIRST_WAIT_SECONDS
    while Path(f"/proc/{pid}/status").exists() and time.monotonic() < deadline:
        time.sleep(min(wait, max(0.0, deadline - time.monotonic())))
        wait = min(2 * wait, _LONGEST_WAIT_SECONDS)


def children_by_parent() -> dict[int, list[int]]:
    """One picture of all processes; what begins afterwards is not in it."""
    found: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                # PID (NAME) STATE PARENT: the name may have any character in it.
                fields = (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
                found.setdefault(int(fields[_PARENT]), []).append(int(folder.name))
    return found


def descendants(pid: int) -> list[int]:
    """All below a process, children before their parents."""
    families = children_by_parent()

    def below(parent: int) -> list[int]:
        return [each for child in families.get(parent, ()) for each in (*below(child), child)]

    return below(pid)


def send(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def marked(environment: Mapping[str, str]) -> list[int]:
    """Processes with all of this in their environment."""
    wanted = {f"{name}={value}".encode() for name, value in environment.items()}
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            if wanted <= set((folder / "environ").read_bytes().split(b"\0")):
                found.append(int(folder.name))
    return found

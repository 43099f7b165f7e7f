"""At most one demo for one stack, and one at a time that writes what all demos of a checkout share."""

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from demo.errors import DemoError


class Claim:
    """Held by the running demo; the kernel frees it however its holder ends."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def tell_url(self, url: str) -> None:
        """For whoever tries to start a second one."""
        self._path.write_text(json.dumps({"pid": os.getpid(), "url": url}), encoding="utf-8")


@contextmanager
def only_demo(local: Path) -> Iterator[Claim]:
    """Claim the stack in `local`; a DemoError names the demo that has it."""
    local.mkdir(parents=True, exist_ok=True)
    note = local / "demo-running.json"
    with (local / "demo.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DemoError(f"already running {_holder(note)}") from None
        claim = Claim(note)
        claim.tell_url("")
        try:
            yield claim
        finally:
            note.unlink(missing_ok=True)


@contextmanager
def only_writer(cache: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Wait until no other demo writes the tree in `cache`: what looks like a leftover may be its work in progress."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another demo that makes the tree in {cache}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _holder(note: Path) -> str:
    try:
        found = json.loads(note.read_text(encoding="utf-8"))
        return f"(pid {found['pid']}, {found['url'] or 'starting'})"
    except (OSError, ValueError, KeyError):
        return "(starting)"

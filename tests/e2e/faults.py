"""Faults for a running stack: kill -9 of its processes, and an emptied Redis."""

import os
import random
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from demo.world import flush_redis
from scripts.stack.supervisor import marked_processes

TARGETS = ("web", "worker", "beat", "agent", "redis", "postgres")


@dataclass
class FaultMaker(threading.Thread):
    """Makes `count` faults at random moments, `seconds` apart on average, once `ready` says so."""

    local: Path
    count: int
    seconds: float
    seed: int
    ready: Callable[[], bool]
    made: list[str] = field(default_factory=list)
    done: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)
        self.random = random.Random(self.seed)  # noqa: S311 (moments of faults, not secrets)

    __hash__ = threading.Thread.__hash__

    def run(self) -> None:
        while not self.ready() and not self.done.wait(0.2):
            pass
        while len(self.made) < self.count and not self.done.wait(self.random.uniform(0.1, 2 * self.seconds)):
            self._make()

    def _make(self) -> None:
        """One fault of a kind that is possible at this moment."""
        for target in self.random.sample(TARGETS, len(TARGETS)):
            if target == "redis":
                if flush_redis(self.local / "env"):
                    self.made.append("flushall")
                    return
                continue
            victims = [pid for pid in marked_processes(self.local) if _role(pid) == target]
            if victims:
                # One that ended meanwhile is no fault: the next round makes another.
                with suppress(ProcessLookupError):
                    os.kill(self.random.choice(victims), signal.SIGKILL)
                    self.made.append(f"kill {target}")
                return


def roles(local: Path) -> set[str]:
    """What runs there."""
    return {_role(pid) for pid in marked_processes(local)} - {""}


def _role(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    if any(word.endswith(b"tidemark-agent.pyz") for word in words):
        return "agent"
    named = [item for item in environment if item.startswith(b"TIDEMARK_PROCESS=")]
    return named[0].partition(b"=")[2].decode() if named else ""

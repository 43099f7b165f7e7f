"""What may happen to a running service: its processes are killed or stand still, messages and connections are lost."""

import os
import random
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import redis
from django.db import DatabaseError, InterfaceError, connection

from scripts.stack.places import Places
from scripts.stack.redis import redis_socket
from scripts.stack.supervision import Supervisor

_FROZEN_SECONDS = (10.0, 40.0)


@dataclass(frozen=True)
class Victim:
    """The stack that is struck."""

    places: Places
    dice: random.Random
    # Those that stand still now.
    frozen: set[int] = field(default_factory=set)

    def pid(self, program: str) -> int:
        """0 while it is being started again."""
        found = (one for one in Supervisor(self.places).processes() if one["name"] == program)
        return int(next(found)["pid"])

    def end(self, pid: int, number: signal.Signals = signal.SIGKILL) -> bool:
        try:
            if pid > 1:
                os.kill(pid, number)
        except ProcessLookupError:
            return False
        return pid > 1

    def freeze(self, pids: list[int]) -> bool:
        """For a while, which does not depend on who is watching: he may be waiting for them."""
        stopped = [pid for pid in pids if self.end(pid, signal.SIGSTOP)]
        self.frozen.update(stopped)
        thaw = threading.Timer(self.dice.uniform(*_FROZEN_SECONDS), self._thaw, [stopped])
        thaw.daemon = True
        thaw.start()
        return bool(stopped)

    def _thaw(self, pids: list[int]) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self.frozen.difference_update(pids)


def _freeze(program: str, *, children: bool = False) -> Callable[[Victim], bool]:
    def strike(victim: Victim) -> bool:
        pid = victim.pid(program)
        return victim.freeze([pid, *_children(pid)] if children else [pid])

    return strike


def _kill(program: str) -> Callable[[Victim], bool]:
    return lambda victim: victim.end(victim.pid(program))


def _kill_child(victim: Victim) -> bool:
    """One of the worker's processes, perhaps in the middle of a task."""
    children = _children(victim.pid("worker"))
    return bool(children) and victim.end(victim.dice.choice(children))


def _freeze_child(victim: Victim) -> bool:
    """One of the worker's processes, perhaps with a lock in its hand."""
    children = _children(victim.pid("worker"))
    return bool(children) and victim.freeze([victim.dice.choice(children)])


def _children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(word) for word in listed.read_text().split()] if pid and listed.exists() else []


def _flush(victim: Victim) -> bool:
    with redis.Redis(unix_socket_path=str(redis_socket(victim.places)), socket_timeout=2) as client:
        try:
            return bool(client.flushall())
        except redis.RedisError:
            return False


def _disconnect(_victim: Victim) -> bool:
    """Every connection to the database but the one that does this."""
    try:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            return bool(cursor.fetchone()[0])
    except (DatabaseError, InterfaceError):
        connection.close()
        return False


def _restart_database(victim: Victim) -> bool:
    return victim.end(victim.pid("postgres"), signal.SIGINT)


def _crash_database(victim: Victim) -> bool:
    """Its own immediate shutdown: it recovers at its start."""
    return victim.end(victim.pid("postgres"), signal.SIGQUIT)


# Each strikes, and tells whether there was anything to be struck.
FAULTS: dict[str, Callable[[Victim], bool]] = {
    "worker killed": _kill("worker"),
    "worker's process killed": _kill_child,
    "web killed": _kill("web"),
    "beat killed": _kill("beat"),
    "Redis killed": _kill("redis"),
    "Redis flushed": _flush,
    "connections ended": _disconnect,
    "database restarted": _restart_database,
    "database crashed": _crash_database,
    "worker frozen": _freeze("worker"),
    "worker's process frozen": _freeze_child,
    "web frozen": _freeze("web", children=True),
    "Redis frozen": _freeze("redis"),
    "database frozen": _freeze("postgres", children=True),
}

"""What is done to parts of the running system: killed, frozen, restarted, filled or cut off, then set free again.

A strike that lasts is ended by `over`; one that is done at once has nothing to end. Those of the database stop it, and
nobody can be answered meanwhile.
"""

import os
import random
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xmlrpc.client import Fault

import psycopg
import redis

from bench.chaos.stage import HOSTS, Disk, Stage
from scripts.stack.servers import redis_socket
from scripts.stack.supervisor import Supervisor, call_over_socket

KILLED, FROZEN, RESTARTED, FILLED, CUT = "killed", "frozen", "restarted", "filled", "cut off"
# What a strike raises whose part is just being started, or is away already: it is left out.
MISSED = (Fault, OSError, StopIteration, redis.RedisError, psycopg.Error)
# How long a strike lasts that is not over at once.
LASTING = (4.0, 14.0)
_DATABASE_SOCKET = ".s.PGSQL.5432"


@dataclass
class Victim:
    """The system that is struck; `dice` choose where there is more than one."""

    stage: Stage
    dice: random.Random
    frozen: list[int] = field(default_factory=list)

    def pid(self, program: str) -> int:
        """0 while it is being started."""
        found = (one for one in Supervisor(self.stage.places).processes() if one["name"] == program)
        return int(next(found)["pid"])

    def tree(self, program: str) -> list[int]:
        top = self.pid(program)
        return [top, *children(top)] if top else []

    def signal(self, pids: Sequence[int], number: signal.Signals) -> bool:
        sent = False
        for pid in pids:
            with suppress(ProcessLookupError):
                if pid > 1:
                    os.kill(pid, number)
                    sent = True
        return sent

    def freeze(self, pids: Sequence[int]) -> bool:
        self.frozen = list(pids)
        return self.signal(pids, signal.SIGSTOP)

    def thaw(self) -> None:
        self.signal(self.frozen, signal.SIGCONT)
        self.frozen = []

    def supervisor(self) -> Any:
        return call_over_socket(self.stage.places.sockets() / "supervisor.sock").supervisor

    def stop(self, program: str) -> bool:
        return bool(self.supervisor().stopProcess(f"{_group(program)}:{program}"))

    def begin(self, program: str) -> None:
        with suppress(Fault):
            self.supervisor().startProcess(f"{_group(program)}:{program}", False)

    def redis(self) -> "redis.Redis":
        return redis.Redis(unix_socket_path=str(redis_socket(self.stage.places)), socket_timeout=5)

    def end_connections(self, before: Callable[[], object] = lambda: None) -> None:
        """All but the one by which it is said; `before` is done while that one is open."""
        from django.conf import settings  # noqa: PLC0415 (the address is known once the stack runs)

        given = settings.DATABASES["default"]
        with psycopg.connect(
            host=given["HOST"] or given["OPTIONS"].get("host", ""), user=given["USER"], dbname=given["NAME"]
        ) as connection:
            before()
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )


def _group(program: str) -> str:
    return "servers" if program in {"postgres", "redis"} else "services"


def children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(word) for word in listed.read_text().split()] if pid and listed.exists() else []


@dataclass(frozen=True)
class Strike:
    """`begin` tells whether there was anything to be struck; `over` sets it free, where it lasts."""

    kind: str
    part: str
    begin: Callable[[Victim], bool]
    over: Callable[[Victim], None] | None = None
    stops_database: bool = False

    @property
    def name(self) -> str:
        return f"{self.part} {self.kind}"


def _kill(program: str, number: signal.Signals = signal.SIGKILL) -> Callable[[Victim], bool]:
    return lambda victim: victim.signal([victim.pid(program)], number)


def _kill_child(program: str) -> Callable[[Victim], bool]:
    def begin(victim: Victim) -> bool:
        found = children(victim.pid(program))
        return bool(found) and victim.signal([victim.dice.choice(found)], signal.SIGKILL)

    return begin


def _freeze(program: str) -> Callable[[Victim], bool]:
    return lambda victim: victim.freeze(victim.tree(program))


def _freeze_child(program: str) -> Callable[[Victim], bool]:
    def begin(victim: Victim) -> bool:
        found = children(victim.pid(program))
        return bool(found) and victim.freeze([victim.dice.choice(found)])

    return begin


def _restart(program: str) -> Callable[[Victim], bool]:
    def begin(victim: Victim) -> bool:
        stopped = victim.stop(program)
        victim.begin(program)
        return stopped

    return begin


def _host(act: Callable[[str], Callable[[Victim], bool]]) -> Callable[[Victim], bool]:
    return lambda victim: act(f"host-{victim.dice.choice(HOSTS)}")(victim)


def _fill(disk: Callable[[Stage], Disk]) -> Callable[[Victim], bool]:
    return lambda victim: disk(victim.stage).fill()


def _empty(disk: Callable[[Stage], Disk]) -> Callable[[Victim], None]:
    return lambda victim: disk(victim.stage).empty()


def _state(stage: Stage) -> Disk:
    return stage.state_disk


def _database(stage: Stage) -> Disk:
    return stage.database_disk


def _fill_redis(victim: Victim) -> bool:
    with victim.redis() as client:
        return bool(client.config_set("maxmemory", 1))


def _empty_redis(victim: Victim) -> None:
    with victim.redis() as client:
        client.config_set("maxmemory", 0)


def _flush(victim: Victim) -> bool:
    with victim.redis() as client:
        return bool(client.flushall())


def _cut_redis(victim: Victim) -> bool:
    client, path = victim.redis(), redis_socket(victim.stage.places)
    with client:
        # Connected while there is something to connect to.
        client.ping()
        path.rename(path.with_suffix(".away"))
        for kind in ("normal", "pubsub"):
            client.client_kill_filter(_type=kind, skipme=True)
    return True


def _join_redis(victim: Victim) -> None:
    _back(redis_socket(victim.stage.places))


def _cut_database(victim: Victim) -> bool:
    path = victim.stage.places.sockets() / _DATABASE_SOCKET
    if not path.exists():
        return False
    victim.end_connections(lambda: path.rename(path.with_suffix(".away")))
    return True


def _join_database(victim: Victim) -> None:
    _back(victim.stage.places.sockets() / _DATABASE_SOCKET)


def _back(path: Path) -> None:
    # Where it could not be taken away, there is nothing to be brought back.
    with suppress(FileNotFoundError):
        path.with_suffix(".away").rename(path)


def _end_connections(victim: Victim) -> bool:
    victim.end_connections()
    return True


def _cut_hosts(victim: Victim) -> bool:
    victim.stage.relay.cut()
    return True


def _cut_program(program: str) -> Callable[[Victim], bool]:
    return lambda victim: victim.stop(program)


def _join_program(program: str) -> Callable[[Victim], None]:
    return lambda victim: victim.begin(program)


def _cut_tree(victim: Victim) -> bool:
    victim.stage.tree.rename(victim.stage.tree.with_suffix(".away"))
    return True


def _join_tree(victim: Victim) -> None:
    _back(victim.stage.tree)


def _thaw(victim: Victim) -> None:
    victim.thaw()


_STANDING = ("web", "worker", "beat", "redis")
STRIKES: tuple[Strike, ...] = (
    *(Strike(KILLED, name, _kill(name)) for name in (*_STANDING, "sink", "archive")),
    Strike(KILLED, "web process", _kill_child("web")),
    Strike(KILLED, "worker process", _kill_child("worker")),
    Strike(KILLED, "host", _host(_kill)),
    # Its own immediate shutdown, and what it does when one of its processes dies: it recovers from its log.
    Strike(KILLED, "database", _kill("postgres", signal.SIGQUIT), stops_database=True),
    Strike(KILLED, "database process", _kill_child("postgres"), stops_database=True),
    *(Strike(FROZEN, name, _freeze(name), _thaw) for name in (*_STANDING, "sink", "archive")),
    Strike(FROZEN, "web process", _freeze_child("web"), _thaw),
    Strike(FROZEN, "worker process", _freeze_child("worker"), _thaw),
    Strike(FROZEN, "host", _host(_freeze), _thaw),
    Strike(FROZEN, "database", _freeze("postgres"), _thaw, stops_database=True),
    *(Strike(RESTARTED, name, _restart(name)) for name in _STANDING),
    Strike(RESTARTED, "database", _restart("postgres"), stops_database=True),
    Strike(FILLED, "state disk", _fill(_state), _empty(_state)),
    Strike(FILLED, "database disk", _fill(_database), _empty(_database), stops_database=True),
    Strike(FILLED, "redis", _fill_redis, _empty_redis),
    Strike("flushed", "redis", _flush),
    Strike(CUT, "redis", _cut_redis, _join_redis),
    Strike(CUT, "database", _cut_database, _join_database, stops_database=True),
    Strike(CUT, "database clients", _end_connections, stops_database=True),
    Strike(CUT, "hosts", _cut_hosts, lambda victim: victim.stage.relay.join()),
    Strike(CUT, "sink", _cut_program("sink"), _join_program("sink")),
    Strike(CUT, "archive", _cut_program("archive"), _join_program("archive")),
    Strike(CUT, "tree", _cut_tree, _join_tree),
)


def in_turn(dice: random.Random, only: str = "") -> "list[Strike]":
    """All of them in an order of the dice; the caller begins again when they are through."""
    found = [strike for strike in STRIKES if only in strike.name]
    dice.shuffle(found)
    return found

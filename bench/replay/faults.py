"""The sweeps of the stack: how often they are sent, and how many the worker has done, as its log tells."""

import argparse
import importlib
import logging
import os
import random
import re
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import django
import redis
from django.db import DatabaseError, InterfaceError, connection

from bench.kit import ROOT, KitError
from bench.replay.cases import CASES, read_studies
from bench.replay.report import expected_table
from scripts.stack import stack_down, stack_remove, stack_up
from scripts.stack.places import Places
from scripts.stack.servers import redis_socket
from scripts.stack.supervisor import Supervisor

SWEEP_SECONDS = 5
# Those that mend what a lost message left.
_SWEEPS = ("builds.sweep", "lab.sweep", "detection.sweep")
_DONE = re.compile(r"Task ([a-z]+\.[a-z_]+)\[[0-9a-f-]+\] succeeded")


class Sweeps:
    """Reads on where it stopped. A worker that is only just being started sweeps nothing, however long that takes.

    Sweeps that were sent while it stood still are all done in the moment when it goes on: they had no more time to mend
    anything than one, and count as one.
    """

    def __init__(self, log: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._place = 0
        self._done = Counter[str]()
        self._whole = self._counted = 0
        self._counted_at = float("-inf")

    def done(self) -> int:
        """Whole sweeps since the beginning, as many as the rarest of them, and no two in less than half their time."""
        with self._log.open("rb") as file:
            file.seek(self._place)
            whole = file.read().rpartition(b"\n")[0]
        self._place += len(whole)
        self._done.update(_DONE.findall(whole.decode("utf-8", "replace")))
        now, before = self._clock(), self._whole
        self._whole = min(self._done[name] for name in _SWEEPS)
        if self._whole > before and now - self._counted_at >= SWEEP_SECONDS / 2:
            self._counted += 1
            self._counted_at = now
        return self._counted


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


# A replay on the whole local stack while its processes are killed at random: the same findings, nothing stuck.
#
#     make bench-replay ARGS="--faults 30 --seed 1"
#
# First every study is played undisturbed, then again and again until all faults have struck. The stack is one of its
# own, and is removed at the end (--keep leaves it and its logs).

LOCAL = ROOT / ".local" / "replay"
NAMES = ("folio-copy-batch", "arm64-clear-pages")
_AGENT = """import sys
sys.path[:0] = [{root!r}, {agents!r}]
from pathlib import Path
from bench.replay.agent import run
sys.exit(run(Path({cases!r})))
"""


def main() -> None:
    options = _parser().parse_args()
    try:
        studies = read_studies(options.cases)
    except KitError as error:
        sys.exit(f"bench: {error}")
    stack_remove(ROOT, local=LOCAL)
    LOCAL.mkdir(parents=True)
    try:
        _set_up(options.cases)
        # It needs Django, which needs the stack.
        run: Any = importlib.import_module("bench.replay.faults_run")
        lines = run.measure(
            [studies[name] for name in options.studies],
            places=Places(ROOT, LOCAL),
            faults=options.faults,
            seed=options.seed,
            kinds=options.kinds,
        )
    finally:
        (stack_down if options.keep else stack_remove)(ROOT, local=LOCAL)
    print(expected_table(lines))
    sys.exit(0 if all(each.right for each in lines) else 1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=Path, default=CASES)
    parser.add_argument("--faults", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--studies", nargs="+", default=NAMES, help="anon-large-folios bisects as well, and takes longer"
    )
    parser.add_argument("--kinds", default="", help="only faults whose names hold this, such as `frozen`")
    parser.add_argument("--keep", action="store_true", help="leave the stack's files")
    return parser


def _set_up(cases: Path) -> None:
    """Start the stack with simulated agents in place of the real ones, and set Django up on it."""
    agent = LOCAL / "agent.py"
    agent.write_text(_AGENT.format(root=str(ROOT), agents=str(ROOT / "agents"), cases=str(cases.resolve())))
    settings = {
        "TIDEMARK_LOCAL_AGENT": str(agent),
        "TIDEMARK_SWEEP_SECONDS": str(SWEEP_SECONDS),
        "TIDEMARK_NOISE_HOURS": "0",
        "TIDEMARK_LOCAL_SLOTS": "1",
        # Simulated agents build nothing.
        "TIDEMARK_BUILD_SANDBOX": "none",
        "TIDEMARK_BUILD_CGROUP": "optional",
    }
    for name in [name for name in os.environ if name.startswith("TIDEMARK_")]:
        del os.environ[name]
    stack = stack_up(ROOT, local=LOCAL, settings=settings, durable=False)
    os.environ["TIDEMARK_ENV_FILE"] = stack.env_file
    os.environ["DJANGO_SETTINGS_MODULE"] = "server.settings"
    django.setup()
    # Each step of each row is a line of the log.
    logging.disable(logging.WARNING)


if __name__ == "__main__":
    main()

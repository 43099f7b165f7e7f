"""One of the two databases of the proof, and the watchers that fill it: real processes, which can be killed."""

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import environ
import psycopg
import redis

from bench.archive_inbox import NAME
from bench.kit import ROOT
from bench.processes import memory_mb

_LOOK_SECONDS = 0.02
# A watcher that fails, because a killed one left a fetch behind that still runs, is started again so often.
_MOST_FAILURES = 50
_ADD_LIST = (
    "from server.sources.models import MailingList; import sys; "
    f"MailingList.objects.create(name='{NAME}', url=sys.argv[1], poll_seconds=1)"
)


class WatchError(Exception):
    """A watcher failed again and again."""


@dataclass
class Watcher:
    """`manage.py watch_list --once` in a process of its own."""

    process: "subprocess.Popen[bytes]"
    log: Path
    started: float = field(default_factory=time.monotonic)
    peak_mb: float = 0.0

    def look(self) -> bool:
        """Whether it still runs; notes its memory."""
        if self.process.poll() is not None:
            return False
        try:
            self.peak_mb = max(self.peak_mb, memory_mb(self.process.pid, "VmHWM"))
        except (OSError, KeyError):
            return self.process.poll() is None
        return True

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")[-2000:]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@dataclass
class Side:
    name: str
    environment: Mapping[str, str]
    folder: Path
    kills: int = 0
    failures: int = 0
    peak_mb: float = 0.0
    started: int = 0
    running: list[Watcher] = field(default_factory=list)

    def start(self) -> Watcher:
        self.started += 1
        log = self.folder / f"watcher-{self.started}.log"
        command = (sys.executable, "manage.py", "watch_list", NAME, "--once")
        with log.open("wb") as out:
            process = subprocess.Popen(command, cwd=ROOT, env=self.environment, stdout=out, stderr=out)
        watcher = Watcher(process, log)
        self.running.append(watcher)
        return watcher

    def stop(self) -> None:
        """End what still runs when the proof was broken off."""
        for watcher in self.running:
            watcher.kill()

    def watch(self) -> float:
        """One watcher, undisturbed to its end; returns its seconds."""
        watcher = self.start()
        while watcher.look():
            time.sleep(_LOOK_SECONDS)
        seconds = time.monotonic() - watcher.started
        if not self._ended(watcher):
            raise WatchError(f"an undisturbed watcher failed: {watcher.said()}")
        return seconds

    def watch_disturbed(self, kills: int, longest: float, chance: random.Random) -> None:
        """Two watchers at a time; the one that has run longer, and so reads, is killed after up to `longest` seconds.

        Each one that ends is replaced until `kills` were done; then both come to their ends.
        """
        running = [self.start(), self.start()]
        done = 0
        while done < kills:
            end = time.monotonic() + chance.uniform(0.1, longest)
            while time.monotonic() < end:
                running = [w if w.look() else self._replaced(w) for w in running]
                time.sleep(_LOOK_SECONDS)
            running.sort(key=lambda watcher: watcher.started)
            running[0].kill()
            done += 1
            self._note(running[0])
            running = [running[1], self.start()]
        self.kills += done
        while running:
            for watcher in [w for w in running if not w.look()]:
                running.remove(watcher)
                if not self._ended(watcher):
                    running.append(self.start())
            time.sleep(_LOOK_SECONDS)

    def result(self, before: str, into: Path) -> None:
        with into.open("wb") as out:
            command = (sys.executable, "-m", "bench.archive_result", before)
            subprocess.run(command, cwd=ROOT, env=self.environment, stdout=out, check=True)

    def _replaced(self, watcher: Watcher) -> Watcher:
        self._ended(watcher)
        return self.start()

    def _ended(self, watcher: Watcher) -> bool:
        """Whether it came to a good end."""
        self._note(watcher)
        good = watcher.process.returncode == 0
        self.failures += not good
        if self.failures > _MOST_FAILURES:
            raise WatchError(f"{self.failures} watchers failed, the last one saying: {watcher.said()}")
        if not good:
            time.sleep(1.0)
        return good

    def _note(self, watcher: Watcher) -> None:
        self.peak_mb = max(self.peak_mb, watcher.peak_mb)


@contextmanager
def fresh_side(name: str, *, servers: Mapping[str, str], url: str, folder: Path) -> Iterator[Side]:
    """A new database with one list in it, gone afterwards; and a state directory below `folder`."""
    given = dict(servers)
    environ.Env.read_env(given["TIDEMARK_ENV_FILE"])
    address = os.environ["TIDEMARK_DATABASE_URL"]
    own = f"tidemark_archive_{os.getpid()}_{name}"
    prefix = f"{own}:"
    state = folder / name
    state.mkdir(parents=True)
    environment = {
        **given,
        "TIDEMARK_DATABASE_URL": _with_database(address, own),
        "TIDEMARK_STATE_DIR": str(state / "state"),
        "TIDEMARK_REDIS_PREFIX": prefix,
        "DJANGO_SETTINGS_MODULE": "server.settings",
    }
    _in_cluster(address, f'CREATE DATABASE "{own}"')
    try:
        for command in (
            ("migrate", "--verbosity", "0"),
            ("shell", "-v", "0", "-c", _ADD_LIST.replace("sys.argv[1]", repr(url))),
        ):
            subprocess.run((sys.executable, "manage.py", *command), cwd=ROOT, env=environment, check=True)
        side = Side(name, environment, state)
        try:
            yield side
        finally:
            side.stop()
    finally:
        _in_cluster(address, f'DROP DATABASE IF EXISTS "{own}" WITH (FORCE)')
        _forget_messages(os.environ["TIDEMARK_REDIS_URL"], prefix)


def _in_cluster(address: str, statement: str) -> None:
    with psycopg.connect(_with_database(address, "postgres"), autocommit=True) as connection:
        connection.execute(statement.encode())


def _with_database(address: str, name: str) -> str:
    """The same server's address of another database."""
    before, question, options = address.partition("?")
    return f"{before.rpartition('/')[0]}/{name}{question}{options}"


def _forget_messages(url: str, prefix: str) -> None:
    """What the watchers sent to workers that nobody started."""
    with redis.Redis.from_url(url.replace("redis+socket://", "unix://")) as client:
        for key in client.scan_iter(f"{prefix}*"):
            client.delete(key)

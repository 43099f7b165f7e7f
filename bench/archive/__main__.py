"""One of the two databases of the proof, and the watchers that fill it: real processes, which can be killed."""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import environ
import psycopg
import redis

from bench.archive.inbox import NAME, SHARES, Inbox, Keepers, ToolError, interleaved
from bench.kit import ROOT
from bench.mail.mailboxes import CORPUS, NoMailsError, many, threads_in
from bench.processes import memory_mb
from bench.scratch_database import servers

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
            command = (sys.executable, "-m", "bench.archive.result", before)
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


# Watch a real public-inbox server while watchers are killed, and compare with a watcher that nobody disturbed.
#
# python -m bench.archive.__main__ [--mails 20000] [--kills 20] [--corpus DIR] [--seed N]
#
# The archive grows in rounds, in several epochs; mails are deleted, purged (which rewrites history), edited and taken
# again. After each round one database is filled by one watcher, the other by two at a time that are killed at random
# moments. Both must hold the same in the end, and the mails that git itself finds in the archive.

_EPOCHS = 4
_MOST_SHOWN = 20
_SHOWN = 1000


@dataclass
class Proof:
    inbox: Inbox
    keepers: Keepers
    clean: Side
    disturbed: Side
    chance: random.Random
    seconds: float = 0.0
    taken: int = 0

    def run(self, kills: int) -> None:
        for number, share in enumerate(SHARES):
            taken = self.keepers.act(number)
            self.taken += taken
            seconds = self.clean.watch()
            self.seconds += seconds
            last = number == len(SHARES) - 1
            some = kills - self.disturbed.kills if last else round(kills * share)
            self.disturbed.watch_disturbed(some, max(1.5 * seconds / max(some, 1), 1.0), self.chance)
            _say(f"round {number + 1}: {taken} mails taken, read in {seconds:.1f} s, then with {some} kills")

    def differences(self, before: str, folder: Path) -> list[str]:
        """Lines that only one of the two has, and what is not as git finds it in the archive."""
        found = []
        for side in (self.clean, self.disturbed):
            side.result(before, _result(folder, side))
        clean, disturbed = (_lines(_result(folder, side)) for side in (self.clean, self.disturbed))
        found += _compared(clean - disturbed, disturbed - clean)
        stored = {str(row["blob"]) for row in map(json.loads, clean) if row.get("raw")}
        live = self.inbox.live()
        found += [f"in the archive and not stored: {blob}" for blob in sorted(live - stored)]
        return found + [f"stored and not in the archive: {blob}" for blob in sorted(stored - live)]


def _compared(clean: set[str], disturbed: set[str]) -> list[str]:
    """What differs, field by field where both have the thing."""
    here, there = ({_name(row): row for row in map(json.loads, lines)} for lines in (clean, disturbed))
    found = []
    for name in sorted(here.keys() | there.keys()):
        one, other = (_facts(rows.get(name, {})) for rows in (here, there))
        fields = sorted(field for field in one.keys() | other.keys() if one.get(field) != other.get(field))
        found += [f"{name}: {field}: {one.get(field)!r} and disturbed {other.get(field)!r}" for field in fields]
    return found


def _name(row: dict[str, Any]) -> str:
    if "series" in row:
        return f"series {row['series']['message_id']} v{row['series']['version']}"
    return f"message {row['message']} {row['blob']}" if "message" in row else f"thread of {row['thread'][0]}"


def _facts(row: dict[str, Any]) -> dict[str, Any]:
    facts: dict[str, Any] = row.get("series", row)
    return facts


def _result(folder: Path, side: Side) -> Path:
    return folder / f"{side.name}.jsonl"


def _lines(path: Path) -> set[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) == len(set(lines)), f"{path.name}: something is stored twice"
    return set(lines)


def prove(mails: int, kills: int, corpus: Path, seed: int, environment: Mapping[str, str]) -> int:
    """0 if both databases hold the same in the end, else 1."""
    chance = random.Random(seed)  # noqa: S311 (the same seed must give the same run)
    posted = list(interleaved(many(threads_in(corpus), mails), chance))
    before = datetime.now(UTC).isoformat()
    started = time.monotonic()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidemark-archive-")))
        inbox = Inbox.create(folder / "inbox", epoch_bytes=sum(map(len, posted)) // _EPOCHS)
        stack.enter_context(inbox.served())
        sides = [
            stack.enter_context(fresh_side(name, servers=environment, url=inbox.url, folder=folder))
            for name in ("clean", "disturbed")
        ]
        proof = Proof(inbox, Keepers(inbox, posted, chance), sides[0], sides[1], chance)
        proof.run(kills)
        differences = proof.differences(before, folder)
        _report(proof, differences, folder, time.monotonic() - started)
    return 1 if differences or proof.disturbed.kills < kills else 0


def _report(proof: Proof, differences: Sequence[str], folder: Path, seconds: float) -> None:
    rows = [json.loads(line) for line in _lines(_result(folder, proof.clean))]
    kinds: dict[str, int] = {}
    for row in rows:
        if "kind" in row:
            kinds[row["kind"]] = kinds.get(row["kind"], 0) + 1
    series = [row["series"] for row in rows if "series" in row]
    print("archive: " + ", ".join(f"{count} {what}" for what, count in proof.inbox.counted().items()))
    print(f"undisturbed: {proof.taken} mails in {proof.seconds:.1f} s, {proof.taken / proof.seconds:.0f} mails/s")
    print("messages: " + ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())))
    print(f"threads: {sum('thread' in row for row in rows)}, series: {len(series)}")
    print(f"disturbed: {proof.disturbed.kills} kills, {proof.disturbed.started} watchers, two at a time")
    print(f"watchers that failed and were started again: {proof.clean.failures + proof.disturbed.failures}")
    print(f"peak memory of a watcher: {max(proof.clean.peak_mb, proof.disturbed.peak_mb):.0f} MB")
    print(f"all: {seconds:.0f} s")
    for line in differences[:_MOST_SHOWN]:
        print(line[:_SHOWN])
    print(f"{len(differences)} differences" if differences else "equal")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.archive", description="watching an archive, and being killed"
    )
    parser.add_argument("--mails", type=int, default=20_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--corpus", type=Path, default=CORPUS, help="folder of mbox files (%(default)s)")
    parser.add_argument("--seed", type=int, default=None)
    chosen = parser.parse_args(arguments)
    seed = chosen.seed if chosen.seed is not None else random.SystemRandom().randrange(10**6)
    print(f"seed {seed}", flush=True)
    try:
        with servers() as environment:
            return prove(chosen.mails, chosen.kills, chosen.corpus, seed, environment)
    except (NoMailsError, ToolError, WatchError) as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())

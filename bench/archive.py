"""Watch a real public-inbox server while watchers are killed, and compare with a watcher that nobody disturbed.

python -m bench.archive [--mails 20000] [--kills 20] [--corpus DIR] [--seed N]

The archive grows in rounds, in several epochs; mails are deleted, purged (which rewrites history), edited and taken
again. After each round one database is filled by one watcher, the other by two at a time that are killed at random
moments. Both must hold the same in the end, and the mails that git itself finds in the archive.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.archive_inbox import Inbox, ToolError
from bench.archive_rounds import SHARES, Keepers, interleaved
from bench.archive_side import Side, WatchError, fresh_side
from bench.mailboxes import CORPUS, NoMailsError, many, threads_in
from bench.scratch_database import servers

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

"""How fast mails are read and put into series, beside patchwork and b4 on the same mails.

python -m bench.mail [--mails DIR] [--patchwork CHECKOUT] [--b4] [--count N] [--rounds N] [--memory [N]]

All programs take turns, round by round, each in a process of its own; what counts is CPU time, so that waiting for a
disk is no one's fault. `--memory` stores N mails in PostgreSQL as `import_mail` does and watches the process instead.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from bench.kit import PeerError, environment_of
from bench.mail.mailboxes import (
    CORPUS,
    NoMailsError,
    Round,
    Thread,
    Worker,
    WorkerError,
    many,
    threads_in,
    write_threads,
)
from bench.mail.memory import DEFAULT_MAILS, memory_report
from bench.table import Bar, Figures, bars_table, table

OURS, PATCHWORK, PURE, B4 = "tidemark", "patchwork", "patchwork, no database", "b4"
BARS = (
    Bar("mails a second on one core", "rate", "", low=1500, digits=0),
    Bar("times patchwork's speed", PATCHWORK, "1", low=3),
    Bar("  without its database", PURE, "1", low=3),
    Bar("times b4's speed", B4, "1", low=3),
)
_PATCHWORK_PACKAGES = ("djangorestframework==3.17.2", "django-filter==25.2", "sqlparse==0.5.5")
_WARM_UP = 1


@dataclass(frozen=True)
class Speed:
    """All measured rounds of one program over the same mails."""

    name: str
    rounds: Sequence[Round]

    @property
    def rates(self) -> list[float]:
        """Mails per CPU second, slowest round first."""
        return sorted(one.outcome.read / one.seconds for one in self.rounds)


def commands(patchwork: Path | None, *, b4: bool) -> list[tuple[str, list[str]]]:
    """The programs to be measured; their environments are made when they are not there. Raises PeerError."""
    found = [(OURS, [sys.executable, "-m", "bench.mail.ours"])]
    if patchwork:
        # Its own requirements name Django 6, which runs on newer Pythons only; this one reads its mails the same way.
        python = environment_of("Django==5.2.19", _PATCHWORK_PACKAGES)
        words = [python, "-m", "bench.mail.peers", str(patchwork)]
        found += [(PATCHWORK, [*words, "rows"]), (PURE, [*words, "pure"])]
    if b4:
        found.append((B4, [environment_of("b4==0.16.0", ()), "-m", "bench.mail.b4"]))
    return found


def measured(programs: Sequence[tuple[str, list[str]]], threads: Sequence[Thread], rounds: int) -> list[Speed]:
    """Every program's rounds, taken in turns; the first of each only warms it up. Raises WorkerError."""
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as running:
        mails = Path(scratch) / "mails"
        write_threads(mails, threads)
        workers = [running.enter_context(closing(Worker(name, [*words, str(mails)]))) for name, words in programs]
        turns = [[worker.turn() for worker in workers] for _ in range(_WARM_UP + rounds)][_WARM_UP:]
    return [Speed(worker.name, [turn[n] for turn in turns]) for n, worker in enumerate(workers)]


def figures_of(speeds: Sequence[Speed]) -> Figures:
    """Our rate, and by what each other program is slower: medians over the rounds, which were side by side."""
    ours = next(speed for speed in speeds if speed.name == OURS)
    found = {"rate": statistics.median(ours.rates)}
    for peer in speeds:
        if peer is not ours:
            pairs = zip(ours.rounds, peer.rounds, strict=True)
            found[peer.name] = statistics.median(theirs.seconds / mine.seconds for mine, theirs in pairs)
    return found


def speed_table(speeds: Sequence[Speed]) -> str:
    rows = []
    for speed in speeds:
        outcome, rates = speed.rounds[-1].outcome, speed.rates
        shown = [f"{rate:.0f}" for rate in (statistics.median(rates), rates[0], rates[-1])]
        rows.append([speed.name, *shown, str(outcome.failed), str(outcome.series or "-")])
    return table(["mails per CPU second", "median", "slowest", "fastest", "not read", "series"], rows)


def report(threads: Sequence[Thread], patchwork: Path | None, *, b4: bool, rounds: int) -> tuple[str, bool]:
    """The tables, and whether every bar that was measured holds."""
    speeds = measured(commands(patchwork, b4=b4), threads, rounds)
    figures = figures_of(speeds)
    mails = [mail for thread in threads for mail in thread]
    size = sum(map(len, mails)) / 1e6
    head = f"{len(mails)} mails of {size:.1f} MB in {len(threads)} files, {rounds} rounds"
    holds = all(bar.holds(figures[bar.key]) for bar in BARS if bar.key in figures)
    return "\n\n".join([head, speed_table(speeds), bars_table(BARS, [("here", figures)], [])]), holds


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.mail", description="speed and memory of reading mails")
    parser.add_argument("--mails", type=Path, default=CORPUS, help="a folder of mbox files; one file is one thread")
    parser.add_argument("--patchwork", type=Path, help="a checkout of patchwork, to be measured beside")
    parser.add_argument("--b4", action="store_true", help="measure b4 beside")
    parser.add_argument("--count", type=int, help="so many mails; the folder's own by default")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--memory", type=int, nargs="?", const=DEFAULT_MAILS, metavar="N", help="memory instead")
    chosen = parser.parse_args(arguments)
    try:
        threads = threads_in(chosen.mails)
        if chosen.memory:
            text, holds = memory_report(threads, chosen.memory)
        else:
            wanted = list(many(threads, chosen.count)) if chosen.count else threads
            text, holds = report(wanted, chosen.patchwork, b4=chosen.b4, rounds=chosen.rounds)
    except (NoMailsError, PeerError, WorkerError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    print(text)
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())

"""What requests and sweeps cost at one year of history and at ten: nothing but what is open or shown may be read.

    python -m bench.scratch_database bench.history.scans [--year 1000] [--rounds 7] [--all]

A year has as many series as `--year` says, ten times as many mails and about thirty times as many boots. Fails where
one of them reads more than twice as many rows at ten years as at one, beyond some hundreds. Times stand beside them for
people: a host that does other things must not fail it.
"""

import argparse
import logging
import statistics
import sys
import time
from dataclasses import dataclass

from django.conf import settings
from django.contrib.auth import get_user_model
from django.db import connection, transaction
from django.test import Client

from bench.table import table
from tests.history_costs import Cost, costs
from tests.long_history import add_history, add_open_work
from tests.rows_read import rows_read


def options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--year", type=int, default=1000, help="series of one year")
    parser.add_argument("--rounds", type=int, default=7, help="how often each is timed")
    parser.add_argument("--all", action="store_true", help="print all of them, not only the dearest")
    return parser.parse_args(arguments)


YEARS = 10
MOST_RATIO = 2.0
# A page of fifty rows with what stands beside them; no scan of a year's mails or boots hides in it.
_FEW_ROWS = 1500
_SHOWN = 25
# These look back two years, which hold twice as much as one.
_OF_TWO_YEARS = frozenset({"noise profiles of a machine", "minimum effects of a session"})
_MOST_OF_TWO_YEARS = 3.0
# Its pager counts the moves of all branches: told, and not held against it.
_COUNTING = frozenset({"/trees/stable/"})


@dataclass(frozen=True)
class Seen:
    """Rows that were looked at, and the median of the milliseconds."""

    rows: int
    ms: float


def main(*arguments: str) -> None:
    """Measure all at both lengths, print them with ratio and limit, and fail where a limit does not hold."""
    chosen = options(list(arguments))
    logging.disable(logging.CRITICAL)
    settings.ALLOWED_HOSTS, settings.DISPATCHER = ["*"], "jenkins"
    client = Client()
    client.force_login(get_user_model().objects.create_superuser("staff", "staff@example.org", "secret"))
    named = costs(client)
    add_history(0, chosen.year, year=chosen.year)
    add_open_work()
    _settle()
    short = {name: _seen(cost, chosen.rounds) for name, cost in named.items()}
    add_history(chosen.year, YEARS * chosen.year, year=chosen.year)
    _settle()
    long = {name: _seen(cost, chosen.rounds) for name, cost in named.items()}
    dearest = sorted(named, key=lambda name: -long[name].ms)
    failed = [name for name in dearest if name not in _COUNTING and long[name].rows > _limit(name, short[name])]
    print(f"{chosen.year} series a year; rows looked at and milliseconds at 1 and {YEARS} years")
    shown = dearest if chosen.all else [name for name in dearest if name in failed or name in dearest[:_SHOWN]]
    rows = [_row(name, short[name], long[name]) for name in shown]
    print(table(["", "rows 1", f"rows {YEARS}", "ratio", "limit", "", "ms 1", f"ms {YEARS}", "ratio"], rows))
    print(f"{len(named) - len(failed)} of {len(named)} hold")
    sys.exit(1 if failed else 0)


def _seen(cost: Cost, rounds: int) -> Seen:
    """Whatever it changes is taken back, after a first time that does what is to be done."""
    with transaction.atomic():
        cost()
        with connection.cursor() as cursor:
            # A few hundred rows of a table as short as these are read faster from its beginning to its end.
            cursor.execute("SET LOCAL enable_seqscan = off")
        with rows_read() as read:
            cost()
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL enable_seqscan = on")
        taken = []
        for _ in range(rounds):
            begun = time.perf_counter()
            cost()
            taken.append(1000 * (time.perf_counter() - begun))
        transaction.set_rollback(True)
    return Seen(read.total(), statistics.median(taken))


def _limit(name: str, short: Seen) -> float:
    return max((_MOST_OF_TWO_YEARS if name in _OF_TWO_YEARS else MOST_RATIO) * short.rows, _FEW_ROWS)


def _row(name: str, short: Seen, long: Seen) -> list[str]:
    ratio = f"{long.rows / max(short.rows, 1):.1f}"
    limit = "-" if name in _COUNTING else f"<= {_limit(name, short):.0f}"
    mark = "pass" if name in _COUNTING or long.rows <= _limit(name, short) else "FAIL"
    times = [f"{short.ms:.1f}", f"{long.ms:.1f}", f"{long.ms / max(short.ms, 0.1):.1f}"]
    return [name, str(short.rows), str(long.rows), ratio, limit, mark, *times]


def _settle() -> None:
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")

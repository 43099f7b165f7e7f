"""How fast mails about findings are composed, on one core: small ones, splits, and tables of hundreds of cells.

python -m bench.scratch_database bench.mail.composing [--count N] [--rounds N]

What counts is CPU time of this process. The data are invented; the database is only there for what stands beside them.
"""

import argparse
import random
import statistics
import time
from collections.abc import Callable
from itertools import cycle, islice

from bench.table import Bar, bars_table, table
from server.reports.composer.mail_text import compose
from server.reports.composer.told import (
    Culprit,
    RanMachine,
    Separation,
    ToldCell,
    ToldFinding,
    ToldUarch,
    WhatRan,
    Writer,
)

BARS = (Bar("1000 mails composed, s on one core", "seconds", "", high=10),)
_SITE = "https://tidemark.example.org"
# Microarchitectures and cases of the mails that take turns.
SHAPES = ((1, 1), (2, 25), (4, 12), (8, 50))
_SEED = 20


def told(uarchs: int, cases: int, rng: random.Random) -> ToldFinding:
    """Half of the microarchitectures lose in every other case, the others win there."""
    names = [f"uarch-{n}" for n in range(uarchs)]
    cells = [
        _cell(name, case, rng.uniform(0.5, 0.95) if n % 2 == 0 else rng.uniform(1.05, 2.5), moved=case % 2 == 0)
        for n, name in enumerate(names)
        for case in range(cases)
    ]
    verdicts = ["regressed" if n % 2 == 0 else "improved" for n in range(uarchs)]
    return ToldFinding(
        writer=Writer("Tidemark <tidemark@example.org>", "tidemark@example.org"),
        kind="split" if uarchs > 1 else "regressed",
        virtual=False,
        subject="[PATCH v3 0/4] mm: copy large folios in batches",
        uarchs=tuple(ToldUarch(name, verdict) for name, verdict in zip(names, verdicts, strict=True)),
        cells=tuple(cells),
        columns=tuple(names),
        run=WhatRan(
            base="5f1b2c3d4e5f60718293a4b5c6d7e8f901234567",
            base_subject="Linux 6.19-rc2",
            tree="mm",
            kernels=("server-x86-64 (x86_64), gcc 14.2.0",),
            machines=tuple(RanMachine(f"{name}-1", name, "Some CPU @ 2.50GHz", "wall clock") for name in names),
            command_lines=("console=ttyS0 mitigations=auto",),
        ),
        page=f"{_SITE}/series/12/",
        reproduce="page-copy/copy-0",
        agent=f"{_SITE}/tidemark-agent.pyz",
        separation=Separation(
            ("no fsrm", "no erms"), (names[0],), tuple(names[1:]), ("folio_copy",), 9, machines=(1, 1)
        ),
        culprit=Culprit("Bisection: made by patch 2 of 4: mm: copy in batches.", ("patch 1 adds nothing",) * 4),
        version="v3",
    )


def _cell(name: str, case: int, ratio: float, *, moved: bool) -> ToldCell:
    ratio = ratio if moved else 1.0
    return ToldCell(
        column=name,
        uarch=name,
        benchmark=("page-copy", "page-clear")[case % 2],
        case=f"copy-{case}",
        words=("copy", f"{case}M", ("hot", "cold")[case % 3 == 0]),
        metric="throughput",
        unit="GB/s",
        better="higher",
        verdict=("regressed" if ratio < 1 else "improved") if moved else "unchanged",
        base_mean=10.0 + case,
        base_sd=0.04,
        patched_mean=(10.0 + case) * ratio,
        patched_sd=0.05,
        ratio=ratio,
        low=ratio * 0.98,
        high=ratio * 1.02,
        boots=(8, 8),
        mde=0.012,
    )


def seconds_of(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def measured(count: int, rounds: int) -> tuple[list[list[str]], float]:
    """A row for each shape, and the seconds that 1000 mails of all shapes in turn take: the median of the rounds."""
    rng = random.Random(_SEED)  # noqa: S311
    mails = {shape: told(*shape, rng) for shape in SHAPES}
    rows = []
    for (uarchs, cases), one in mails.items():
        spent = statistics.median(seconds_of(lambda one=one: compose(one)) for _ in range(rounds * 5))  # type: ignore[misc]
        rows.append([f"{uarchs} x {cases}", str(len(compose(one).body.splitlines())), f"{1000 * spent:.1f}"])
    turns = list(islice(cycle(mails.values()), count))
    whole = statistics.median(seconds_of(lambda: [compose(one) for one in turns]) for _ in range(rounds))
    return rows, whole * 1000 / count


def main(*arguments: str) -> None:
    parser = argparse.ArgumentParser(prog="bench.mail.composing", description="speed of composing mails")
    parser.add_argument("--count", type=int, default=1000, help="so many mails in a round")
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args(arguments)
    rows, seconds = measured(chosen.count, chosen.rounds)
    figures = {"seconds": seconds}
    print(table(["microarchitectures x cases", "lines", "ms of CPU"], rows))
    print()
    print(bars_table(BARS, [("here", figures)], []))
    if not all(bar.holds(figures[bar.key]) for bar in BARS):
        raise SystemExit(1)

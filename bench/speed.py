"""How long the statistics take: one core, one process, best of a few.

Processor time is counted, which other programs on the machine disturb less than the time on the clock.
"""

import time
from collections.abc import Callable
from functools import partial
from statistics import median

import numpy as np

from bench.kit import Histories, Kit, Row
from server.stats import Cell, compare
from server.stats.cpd_rows import predict

POINTS = 1000
CELLS = 2000
REPEATS = 3


def long_histories(kit: Kit, seed: int = 1) -> Histories:
    """A small simulated fleet whose timelines have exactly `POINTS` points."""
    no_gaps = {"p_missing": (0.0, 0.0), "gap_rate": 0.0}
    small = {"worlds": 1, "null_worlds": 0, "machines": (3, 3), "benches": (7, 7), "commits": (POINTS, POINTS)}
    rows, _ = kit.simulate.histories(cfg=kit.simulate.HISTORY | small | no_gaps, seed=seed)
    return Histories(f"{POINTS} points", rows)


def ms_history(rows: list[Row]) -> float:
    """Milliseconds for one timeline, searched alone: the median over timelines."""
    return median(_milliseconds(partial(_search, [row])) for row in rows)


def ms_history_in_fleet(rows: list[Row]) -> float:
    """Milliseconds for one timeline when all are searched together."""
    return _milliseconds(partial(_search, rows)) / len(rows)


def ms_per_1000_points(rows: list[Row]) -> float:
    """Milliseconds for each 1000 points of simulated fleets, most of whose timelines are short."""
    return 1000 * _milliseconds(partial(_search, rows)) / sum(len(row["values"]) for row in rows)


def ms_cells(boots: int = 7, runs: int = 3) -> float:
    """Milliseconds for `CELLS` comparisons in one call."""
    noise = np.random.default_rng(3).normal(0, 0.02, (2, CELLS, boots, runs))
    base, patched = 100 * np.exp(noise)
    cells = [
        Cell(base=list(a), patched=list(b), better="lower", min_effect=0.01) for a, b in zip(base, patched, strict=True)
    ]
    return _milliseconds(partial(compare, cells))


def _search(rows: list[Row]) -> list[Row]:
    return list(predict(rows, []))


def _milliseconds(work: Callable[[], object]) -> float:
    times = []
    for _ in range(REPEATS):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return 1000 * min(times)

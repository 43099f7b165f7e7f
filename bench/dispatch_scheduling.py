"""What the scheduler's decision costs: 2000 waiting sessions over 40 machines and 200 builds over 8 builders.

    python -m bench.scratch_database bench.dispatch_scheduling

A decision is all of it: reading the snapshot from PostgreSQL and deciding. The database holds a history as well: 20 000
sessions that are over, and 2000 attempts within the day that fair share looks back.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from statistics import median

from bench.dispatch_fleet import BUILDERS, BUILDS, MACHINES, SESSIONS, fill
from bench.table import table
from server.core import clock
from server.lab.scheduling import decide, queue_in_order, read_snapshot

MOST_MS = 50.0
ROUNDS = 40


@dataclass(frozen=True)
class Cost:
    """Milliseconds of many rounds: the best, the median and the worst, and the median of this process' CPU time.

    On a host that does other things the first and the last say more than the two between.
    """

    name: str
    best: float
    middle: float
    worst: float
    cpu: float

    @property
    def ratio(self) -> float:
        """Of the bar; what is below 1 holds."""
        return self.middle / MOST_MS


def measure(rounds: int = ROUNDS) -> tuple[Cost, ...]:
    """Fill the database that Django is set up on, and time the decision there: whole, its two halves, and the queue."""
    fill(clock.now() - timedelta(days=2))
    chosen = decide(read_snapshot())
    snapshot = read_snapshot()
    sessions = sum(one.kind == "session" for one in chosen)
    builds = sum(one.kind == "build" for one in chosen)
    if (sessions, builds) != (MACHINES, BUILDERS):
        raise AssertionError(f"{sessions} sessions and {builds} builds were chosen")
    return (
        _time("decision", lambda: decide(read_snapshot()), rounds),
        _time("  reading", read_snapshot, rounds),
        _time("  deciding", lambda: decide(snapshot), rounds),
        _time("whole queue, for its page", lambda: queue_in_order(snapshot), rounds),
    )


def _time(name: str, step: Callable[[], object], rounds: int) -> Cost:
    taken, cpu = [], []
    for _ in range(rounds):
        begin, begin_cpu = time.perf_counter(), time.process_time()
        step()
        taken.append(1000 * (time.perf_counter() - begin))
        cpu.append(1000 * (time.process_time() - begin_cpu))
    return Cost(name, min(taken), median(taken), max(taken), median(cpu))


def told(costs: tuple[Cost, ...]) -> str:
    rows = [
        [cost.name, *(f"{ms:.1f}" for ms in (cost.best, cost.middle, cost.worst, cost.cpu)), f"{cost.ratio:.2f}"]
        for cost in costs
    ]
    title = f"{SESSIONS} sessions over {MACHINES} machines, {BUILDS} builds over {BUILDERS} builders"
    return f"{title}; bar {MOST_MS:g} ms\n" + table(
        ["", "best ms", "median ms", "worst ms", "own CPU ms", "median / bar"], rows
    )


def main() -> None:
    costs = measure()
    print(told(costs))
    sys.exit(0 if costs[0].middle <= MOST_MS else 1)

"""The process of bench.detection: python -m bench.scratch_database bench.detection_run."""

import statistics
import sys
import time

from bench.detection import options
from bench.detection_cells import judged_in
from bench.detection_history import CASES, MACHINES, History, make_history, settle
from bench.table import table
from server.detection.heads.observing import observe_next

SHORT, LONG = 500, 5000
# By how much the cost on a long timeline may differ, as a share of that on a short one.
_ALIKE = 0.20
_JUDGED_IN = 3.0


def main(*arguments: str) -> None:
    """Time both, print the figures beside their bars, and fail where one does not hold."""
    chosen = options(list(arguments))
    short, long = make_history("short", SHORT), make_history("long", LONG)
    settle()
    costs = _costs(short, long, chosen.points)
    cells = judged_in(chosen.cells)
    before, after = (statistics.median(costs[history.length]) for history in (short, long))
    # Of neighbours in time: what else the host does slows both.
    ratio = statistics.median(b / a for a, b in zip(costs[SHORT], costs[LONG], strict=True))
    timelines = MACHINES * CASES
    rows = [
        (f"a new head on {timelines} timelines of {SHORT} points, ms", f"{1000 * before:.1f}", "", ""),
        (f"a new head on {timelines} timelines of {LONG} points, ms", f"{1000 * after:.1f}", "", ""),
        ("  ratio", f"{ratio:.3f}", f"{1 - _ALIKE:.1f} to {1 + _ALIKE:.1f}", _mark(abs(ratio - 1) <= _ALIKE)),
        (f"{chosen.cells} cells judged and stored, s", f"{cells:.2f}", f"< {_JUDGED_IN:g}", _mark(cells < _JUDGED_IN)),
    ]
    print(table(("", "seen", "bar", ""), rows))
    if any(row[-1] == "FAIL" for row in rows):
        sys.exit(1)


def _costs(short: History, long: History, points: int) -> dict[int, list[float]]:
    """Seconds of each new head, by the length of its branch; turn and turn about, so that both see the same minutes."""
    costs: dict[int, list[float]] = {short.length: [], long.length: []}
    for number in range(points):
        # Whoever goes first warms the caches of the other.
        for history in (short, long) if number % 2 else (long, short):
            history.measured()
            begun = time.perf_counter()
            if not observe_next(history.branch.pk, history.reference.pk):
                raise SystemExit(f"no head of {history.branch} was due")
            costs[history.length].append(time.perf_counter() - begun)
    return costs


def _mark(holds: bool) -> str:  # noqa: FBT001 (a word for a flag)
    return "pass" if holds else "FAIL"

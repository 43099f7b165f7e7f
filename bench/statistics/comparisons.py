"""Comparisons and change points on every set, ours beside those of peers, and how long they take."""

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

import numpy as np

from bench.kit import (
    OWN,
    Histories,
    Kit,
    Pairs,
    Peer,
    PeerError,
    Ranges,
    Row,
    pairs,
    peer_predictions,
    recorded,
    simulated,
)
from bench.table import Figures, relative_width, score_pairs, score_recorded, score_simulated, table
from server.stats import Cell, compare
from server.stats.rows import compared, predict

# What the simulator or a labeller knows.
_LABELS = ("annotations", "upstream", "truth", "minor", "machine_steps", "null", "index")
_SETTINGS = ("traits", "trait", "run_sd", "effect", "z", "icc", "kind", "size", "patch")
TRUTH = frozenset(_LABELS + _SETTINGS)


def without_truth(rows: Sequence[Row]) -> Iterator[Row]:
    for row in rows:
        yield {key: value for key, value in row.items() if key not in TRUTH}


def our_changes(rows: Sequence[Row], tasks: Sequence[Row] = ()) -> list[Row]:
    """Change points of all rows together: those of one world are a fleet."""
    return list(predict(list(without_truth(rows)), list(without_truth(tasks))))


def our_comparisons(rows: Sequence[Row]) -> list[Row]:
    return list(compared(list(without_truth(rows))))


# How long the statistics take: one core, one process, best of a few.
#
# Processor time is counted, which other programs on the machine disturb less than the time on the clock.

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
        Cell(base=a, patched=b, better="lower", min_effect=0.01)
        for a, b in zip(base.tolist(), patched.tolist(), strict=True)
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


LEVEL = 0.05
Key = Callable[[Row], str]


@dataclass(frozen=True)
class Rate:
    """Among `pairs` pairs that share something: how many were called different, and how wide their intervals are."""

    group: str
    pairs: int
    called: float
    covered: float
    width: float

    @property
    def error(self) -> float:
        """Standard error of `called`."""
        return math.sqrt(self.called * (1 - self.called) / self.pairs)


def rate(group: str, rows: Sequence[Row], found: dict[str, Row]) -> Rate:
    called = covered = 0
    widths = []
    for row in rows:
        prediction = found[row["id"]]
        called += bool(prediction.get("reject", prediction["p"] < LEVEL))
        if prediction["lo"] is not None:
            covered += prediction["lo"] <= row["effect"] <= prediction["hi"]
            widths.append(prediction["hi"] - prediction["lo"])
    middle = sorted(widths)[len(widths) // 2] if widths else math.nan
    return Rate(group, len(rows), called / len(rows), covered / max(1, len(widths)), middle)


def _design(row: Row) -> str:
    return f"{row['boots']}x{row['samples']}"


GROUPS: Sequence[tuple[str, Key]] = (
    ("design", _design),
    ("trait", lambda row: str(row["trait"])),
    ("correlation", lambda row: str(row["icc"])),
    ("trait in design", lambda row: f"{row['trait']}, {_design(row)}"),
)


def rates_table(pairs: Pairs, ours: Sequence[Row], t_on_boots: Sequence[Row]) -> str:
    """False positives of both, coverage, and width as a share of the t interval's, on pairs without a change."""
    null = [row for row in pairs.rows if row["kind"] == "null"]
    mine, other = ({row["id"]: row for row in predictions} for predictions in (ours, t_on_boots))
    head = ["no change, by", "pairs", "false positives", "+-", "coverage", "width / t", "t on boots"]
    lines = [_line("all", null, mine, other)]
    for name, key in GROUPS:
        for group in sorted({key(row) for row in null}):
            same = [row for row in null if key(row) == group]
            lines += [_line(f"{name}: {group}", same, mine, other)]
    return table(head, lines)


def _line(group: str, rows: Sequence[Row], mine: dict[str, Row], other: dict[str, Row]) -> list[str]:
    own, t = rate(group, rows, mine), rate(group, rows, other)
    figures = [f"{own.called:.4f}", f"{own.error:.4f}", f"{own.covered:.4f}", f"{own.width / t.width:.3f}"]
    return [group, str(own.pairs), *figures, f"{t.called:.4f}"]


PEER = "t_boot"


@dataclass(frozen=True)
class Compared:
    """Pairs with the predictions of both, and the figures of both."""

    pairs: Pairs
    ours: Sequence[Row]
    theirs: Sequence[Row]
    figures: Figures
    peer_figures: Figures


def compare_set(kit: Kit, seed: int | None, ranges: Ranges = OWN) -> Compared:
    these = pairs(kit, seed, ranges)
    theirs = [kit.baselines.compare_row((row, PEER)) for row in these.rows]
    return _scored(kit, these, our_comparisons(these.rows), theirs)


def pooled(kit: Kit, sets: Sequence[Compared]) -> Compared:
    """All sets as one: rates of rare events need many pairs."""
    rows = [row for compared in sets for row in compared.pairs.rows]
    mine = [row for compared in sets for row in compared.ours]
    theirs = [row for compared in sets for row in compared.theirs]
    return _scored(kit, Pairs("pooled", rows), mine, theirs)


def _scored(kit: Kit, these: Pairs, mine: Sequence[Row], theirs: Sequence[Row]) -> Compared:
    peer_figures = score_pairs(kit, these, theirs)
    figures = relative_width(score_pairs(kit, these, mine), peer_figures)
    return Compared(these, mine, theirs, figures, relative_width(peer_figures, peer_figures))


RECORDED = ("perf", "tcpd", "null_real")
Detector = Callable[[Sequence[Row], Sequence[Row]], list[Row]]


def measure(
    kit: Kit,
    seed: int | None,
    detector: Detector,
    *,
    ranges: Ranges = OWN,
    most: int | None = None,
    online: bool = True,
) -> Figures:
    """Figures on one simulated set (and, for the development set, on the recorded ones); `most` rows of each set.

    Looking again after every few points takes most of the time: without `online` that is left out.
    """
    figures: dict[str, float] = {}
    if seed is None:
        for name in RECORDED:
            histories = _first(recorded(kit, name), most)
            figures |= score_recorded(kit, histories, detector(histories.rows, ()))
    changing, quiet = (_first(histories, most) for histories in simulated(kit, seed, ranges))
    if not online:
        changing = replace(changing, tasks=())
    found = detector([*changing.rows, *quiet.rows], changing.tasks)
    return {**figures, **score_simulated(kit, changing, quiet, found)}


def _first(histories: Histories, most: int | None) -> Histories:
    return Histories(histories.name, histories.rows[:most], histories.tasks)


def tidemark(kit: Kit, seed: int | None, ranges: Ranges = OWN, *, online: bool = True) -> Figures:
    return measure(kit, seed, our_changes, ranges=ranges, online=online)


def peer(kit: Kit, which: Peer, most: int | None) -> Figures:
    """Nothing where the peer cannot be installed or takes too long; that is said."""
    try:
        figures = measure(kit, None, lambda rows, tasks: peer_predictions(kit, which, rows, tasks), most=most)
        times = [row["time_s"] for row in peer_predictions(kit, which, long_histories(kit).rows)]
        return {**figures, "ms_history": 1000 * median(times), "ms_per_1000": figures["ms_on_clock"]}
    except PeerError as error:
        print(f"bench: {which.name} is left out: {error}", file=sys.stderr)
        return {}

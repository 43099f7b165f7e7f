"""Change points on every set: Tidemark's figures, and those of the peers on the development sets."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median

from bench import ours
from bench.bars import Figures
from bench.kit import Histories, Kit, Row, recorded, simulated
from bench.peers import Peer, PeerError, predict
from bench.ranges import OWN, Ranges
from bench.scores import score_recorded, score_simulated
from bench.speed import long_histories

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
    return measure(kit, seed, ours.search, ranges=ranges, online=online)


def peer(kit: Kit, which: Peer, most: int | None) -> Figures:
    """Nothing where the peer cannot be installed or takes too long; that is said."""
    try:
        figures = measure(kit, None, lambda rows, tasks: predict(kit, which, rows, tasks), most=most)
        times = [row["time_s"] for row in predict(kit, which, long_histories(kit).rows)]
        return {**figures, "ms_history": 1000 * median(times), "ms_per_1000": figures["ms_on_clock"]}
    except PeerError as error:
        print(f"bench: {which.name} is left out: {error}", file=sys.stderr)
        return {}

"""Change points on timelines: each is judged on its own; what other machines say is for the fleet step."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from server.stats.noise import difference_noise, median, run_correlation
from server.stats.segments import segmentation
from server.stats.spread import FEWEST_POINTS, Scale
from server.stats.steps import STRICT, Cut, Step, bends_at, steps_from, with_weak
from server.stats.timelines import Floats, Timeline
from server.stats.trends import breaks

# What a segment costs in the search, times the log of the length; correlated runs need more.
PENALTY, CORRELATION_PENALTY = 0.6, 0.4
# Where weak steps are asked for too, more is tried.
WEAK_PENALTY = 0.45
# The correlation is first read off the levels that this penalty leaves.
FIRST_PENALTY = 0.8
# Longer timelines are searched in windows of this many points, so that the time grows with the length only. Of what
# two windows share, each is believed for the half that is farther from its end.
WINDOW, SHARED = 2000, 400
# Without logarithms, values are in units of their usual size; beyond this they are hiccups in any case.
LARGEST = 1e6
# A usual size below the normal floats cannot be divided by.
SMALLEST = float(np.finfo(np.float64).tiny)

# From values and threshold to cuts.
Search = Callable[[Floats, float], list[Cut]]


def nominate(timelines: Sequence[Timeline], *, threshold: float = STRICT) -> list[list[Step]]:
    """For each timeline its steps in order of index.

    `threshold` is the least score, -log10 of a p-value; a higher one nominates less. One below STRICT adds weak steps,
    with scores below STRICT, to the sure ones and leaves those as they are. Values that are not finite are left out.
    Timelines of no machine that keep no level (see `trends`) get the places where their course breaks, whatever the
    threshold.
    """
    return [_nominate(timeline, threshold) for timeline in timelines]


def _nominate(timeline: Timeline, threshold: float) -> list[Step]:
    kept = np.flatnonzero(np.isfinite(timeline.values))
    values = timeline.values[kept]
    search = _levels if timeline.machine else _levels_or_course
    found = _apart(cut for window in _windows(len(values)) for cut in _search(values, window, search, threshold))
    ends = [*(cut.place for cut in found), len(values)][1:]
    return [
        Step(
            index=int(kept[cut.place]),
            revision=int(timeline.revisions[kept[cut.place]]),
            effect=cut.difference,
            score=cut.evidence,
            points=end - cut.place,
        )
        for cut, end in zip(found, ends, strict=True)
    ]


def _apart(cuts: Iterable[Cut]) -> list[Cut]:
    """Of two cuts nearer than a step can be, the surer: two windows may place one step on either side of their seam."""
    found: list[Cut] = []
    for cut in cuts:
        if found and cut.place - found[-1].place < FEWEST_POINTS:
            found[-1] = max(found[-1], cut, key=lambda one: one.evidence)
        else:
            found.append(cut)
    return found


def _windows(count: int) -> Iterator[slice]:
    start = 0
    while start == 0 or start + SHARED < count:
        yield slice(start, min(start + WINDOW, count))
        start += WINDOW - SHARED


def _search(values: Floats, window: slice, search: Search, threshold: float) -> list[Cut]:
    part = values[window]
    if len(part) < 2 * FEWEST_POINTS or float(part.min()) == float(part.max()):
        return []
    cuts = search(part, threshold)
    low = window.start + SHARED // 2 if window.start else 0
    high = window.stop - SHARED // 2 if window.stop < len(values) else len(values)
    return [replace(cut, place=place) for cut in cuts if low <= (place := window.start + cut.place) < high]


def _relative(values: Floats) -> Floats:
    return np.log(values) if float(values.min()) > 0 else _in_units(values)


def _in_units(values: Floats) -> Floats:
    """Values in units of their usual size, which is the median size of those that are not zero."""
    usual = max(median(np.abs(values[values != 0])), SMALLEST)
    with np.errstate(over="ignore"):
        return np.clip(values / usual, -LARGEST, LARGEST)


def _levels_or_course(values: Floats, threshold: float) -> list[Cut]:
    bends = breaks(_in_units(values))
    if bends is None:
        return _levels(values, threshold)
    relative = _relative(values)
    return bends_at(relative, bends, Scale(difference_noise(relative)))


def _levels(values: Floats, threshold: float) -> list[Cut]:
    relative = _relative(values)
    noise = difference_noise(relative)
    candidates = segmentation(relative, noise)
    correlation = run_correlation(_residuals(relative, candidates.cuts(FIRST_PENALTY)))
    scale = Scale(noise, (1 + correlation) / (1 - correlation))
    cuts = candidates.cuts(PENALTY + CORRELATION_PENALTY * correlation)
    found = steps_from(relative, cuts, scale, max(threshold, STRICT))
    if threshold >= STRICT:
        return found
    weak = candidates.cuts(WEAK_PENALTY + CORRELATION_PENALTY * correlation)
    return with_weak(found, steps_from(relative, weak, scale, threshold))


def _residuals(values: Floats, cuts: Sequence[int]) -> Floats:
    return np.concatenate([part - median(part) for part in np.split(values, cuts)])

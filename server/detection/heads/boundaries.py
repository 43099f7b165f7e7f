"""How well a step is placed, and between which two heads it surely lies."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from server.detection.heads.fleets import stored_watch
from server.detection.models import ChangePoint

# A change of size d among noise of s is placed k points off with a probability of about Phi(-(d/s) sqrt(k) / 2): beyond
# so many points, divided by the squares of d/s, in fewer than 1 of 100 cases.
_PLACED = (2 * 2.326) ** 2
# A step that is placed worse than this would not have been published; more revisions only make the search longer.
_WIDEST = 5
# The median of |a - b| of two normal values is so many deviations of one.
_TO_DEVIATION = 1 / (0.6745 * math.sqrt(2))
# Code layout alone moves levels so far: no noise is smaller (log ratio).
_LEAST_NOISE = 0.0015
# A step near one of the same cell and direction is that one, seen again.
SAME_WITHIN = 2


@dataclass(frozen=True)
class Span:
    """From a head that surely has the old level to one that surely has the new; both are places."""

    before: int
    after: int

    def overlaps(self, other: "Span") -> bool:
        return self.before < other.after and other.before < self.after


def margin(points: Sequence[ChangePoint]) -> int:
    """By how many heads the place of a step may be wrong that these timelines show together."""
    signal = sum((point.effect / noise_of(point)) ** 2 for point in points)
    return min(int(_PLACED / signal), _WIDEST) if signal > 0 else _WIDEST


def noise_of(point: ChangePoint) -> float:
    """Deviation of one point of its timeline, from neighbours, which share the drift; on logarithms."""
    values = [value for value in stored_watch(point.timeline).values if value > 0]
    if len(values) < 2:  # noqa: PLR2004 (there is no neighbour)
        return _LEAST_NOISE
    return max(float(np.median(np.abs(np.diff(np.log(values))))) * _TO_DEVIATION, _LEAST_NOISE)


def widened(span: Span, places: Sequence[int], by: int, *, within: Span | None = None) -> Span:
    """The span with so many of the heads at `places` (in order) more on each side, but not beyond `within`."""
    low = max(bisect_right(places, span.before) - 1 - by, 0)
    high = min(bisect_left(places, span.after) + by, len(places) - 1)
    before, after = min(places[low], span.before), max(places[high], span.after)
    if within is None:
        return Span(before, after)
    return Span(max(before, min(within.before, span.before)), min(after, max(within.after, span.after)))

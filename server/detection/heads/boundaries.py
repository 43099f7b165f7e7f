"""Between which two heads a step surely lies."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from server.detection.heads.fleets import stored_watch
from server.detection.models import ChangePoint, Finding, MeasuredHead
from server.stats.noise import median
from server.stats.timelines import Floats

# A place is ruled out when the points say that another one is a hundred times as likely (as a logarithm).
_RULED_OUT = math.log(100)
# A step is looked for so many heads beside where it was published. One that is placed worse would not have been.
_WIDEST = 8
# So many points on either side speak for its levels, and no point for more than so many deviations: hiccups.
_REACH, _LOUDEST = 12, 4.0
# The median of |a - b| of two normal values is so many deviations of one.
_TO_DEVIATION = 1 / (0.6745 * math.sqrt(2))
# Code layout alone moves levels so far: no noise is smaller (log ratio).
_LEAST_NOISE = 0.0015
# A step near one of the same cell and direction is that one, seen again.
SAME_WITHIN = 2


@dataclass(frozen=True)
class Span:
    """From a head that has the old level to one that has the new; both are places."""

    before: int
    after: int

    def overlaps(self, other: "Span") -> bool:
        return self.before < other.after and other.before < self.after


def likely_span(points: Sequence[ChangePoint], places: Sequence[int]) -> Span:
    """Where the step of these timelines may lie, given what they show together, among the heads at `places` (in order).

    All points are of one place. A machine that skipped heads says nothing about them.
    """
    evidence = [_Evidence.of(point) for point in points]
    at = bisect_left(places, points[0].place)
    low = bisect_left(places, min(point.before_place for point in points))
    near = range(max(min(low, at) - _WIDEST, 1), min(at + _WIDEST, len(places) - 1) + 1)
    possible = [k for k in near if sum(one.against(places[k]) for one in evidence) <= _RULED_OUT] or [max(at, 1)]
    return Span(places[possible[0] - 1], places[possible[-1]])


def nearby(point: ChangePoint, places: Sequence[int]) -> Span:
    """Two heads more on each side of where a step was published."""
    low = bisect_left(places, point.before_place) - SAME_WITHIN
    high = bisect_left(places, point.place) + SAME_WITHIN
    return Span(places[max(low, 0)], places[min(high, len(places) - 1)])


def span_of(finding: Finding) -> Span | None:
    """Between which places a finding is claimed."""
    ends = MeasuredHead.objects.filter(branch=finding.branch_id, revision__in=(finding.before_id, finding.after_id))
    places = dict(ends.values_list("revision_id", "place"))
    if finding.before_id not in places or finding.after_id not in places:
        return None
    return Span(places[finding.before_id], places[finding.after_id])


def claimed_span(finding: Finding) -> Span | None:
    """As `span_of`; where bisection has found the culprit, the change is there and nowhere else between the heads."""
    span = span_of(finding)
    if span is None or finding.culprit is None or finding.before is None:
        return span
    searches = finding.bisections.filter(culprit=finding.culprit)
    revisions = searches.values_list("revisions", flat=True).first() or []
    if finding.culprit.sha not in revisions or revisions[0] != finding.before.sha:
        return span
    place = span.before + revisions.index(finding.culprit.sha)
    return Span(place - 1, place) if place <= span.after else span


@dataclass(frozen=True, eq=False)
class _Evidence:
    """The last points of a timeline around a step; for each, how much more it speaks for the new level."""

    place: int
    revisions: Sequence[int]
    speaks: Floats

    @classmethod
    def of(cls, point: ChangePoint) -> "_Evidence":
        watch = stored_watch(point.timeline)
        values = np.log(np.maximum(np.array(watch.values, dtype=np.float64), np.finfo(np.float64).tiny))
        at = bisect_left(watch.revisions, point.place)
        before, after = values[max(at - _REACH, 0) : at], values[at : at + _REACH]
        if not before.size or not after.size:
            return cls(point.place, (), values[:0])
        noise = max(median(np.abs(np.diff(values))) * _TO_DEVIATION, _LEAST_NOISE)
        old, new = (np.minimum(((values - median(side)) / noise) ** 2, _LOUDEST**2) for side in (before, after))
        return cls(point.place, watch.revisions, (old - new) / 2)

    def against(self, place: int) -> float:
        """How much the points speak for where the step was published, and against this place (log likelihood)."""
        low, high = sorted((bisect_left(self.revisions, place), bisect_left(self.revisions, self.place)))
        between = float(self.speaks[low:high].sum())
        return between if place > self.place else -between

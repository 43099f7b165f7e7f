"""Where the change of a branch lies: between which heads it is claimed, what its timelines say of that, whether it
went back.
"""

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from server.detection.branches.fleet import stored_watch
from server.detection.findings.vector import as_speed, shorten
from server.detection.models import ChangePoint, Finding, MeasuredHead
from server.results.models import Metric
from server.sources.models import Revision
from server.stats.changepoints.timeline import Floats, median
from server.stats.changepoints.watch import NEAR, StepState, Watch


def is_worse(point: ChangePoint) -> bool:
    return (point.effect > 0) != (point.timeline.metric.better == Metric.Better.HIGHER)


def suspected_kind(points: Sequence[ChangePoint]) -> Finding.Kind:
    """What it will be if fresh boots show what the timelines show."""
    worse = {is_worse(point) for point in points}
    if len(worse) > 1:
        return Finding.Kind.SPLIT
    return Finding.Kind.REGRESSED if worse == {True} else Finding.Kind.IMPROVED


def suspected_headline(points: Sequence[ChangePoint]) -> str:
    """For example: `Suspected: 5.0 % slower in time of mm-basic/copy on haswell; to be confirmed by fresh boots.`"""
    largest: dict[tuple[str, str], ChangePoint] = {}
    for point in sorted(points, key=lambda one: -abs(one.effect)):
        largest.setdefault((point.timeline.machine.uarch.name, _cell(point)), point)
    told = [
        f"{as_speed(math.exp(point.effect), point.timeline.metric.better)} in {cell} on {uarch}"
        for (uarch, cell), point in largest.items()
    ]
    return f"Suspected: {shorten(told)}; to be confirmed by fresh boots."


def _cell(point: ChangePoint) -> str:
    return f"{point.timeline.metric.name} of {point.timeline.case}"


# A step near one of the same cell and direction is that one, seen again.
SAME_WITHIN = 2


@dataclass(frozen=True)
class Span:
    """From a head that has the old level to one that has the new; both are places."""

    before: int
    after: int

    def overlaps(self, other: "Span") -> bool:
        return self.before < other.after and other.before < self.after


def nearby(point: ChangePoint, own: Span, places: Sequence[int]) -> Span:
    """Two heads more on each side of where a step was published, where it may lie there; else where it may: `own`."""
    low = bisect_left(places, point.before_place) - SAME_WITHIN
    high = bisect_left(places, point.place) + SAME_WITHIN
    around = Span(places[max(low, 0)], places[min(high, len(places) - 1)])
    return around if around.overlaps(own) else own


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


# A place is ruled out when the points say that another one is a hundred times as likely (as a logarithm).
_RULED_OUT = math.log(100)
# All machines were heard about where a step was published: timelines that know better must be a million times as sure.
_OVERRULED = math.log(1e6)
# So often the levels are read again when the step turns out to lie elsewhere than was thought. One is enough but where
# two changes lie close to each other.
_TRIES = 3
# A step is looked for so many heads beside where it was published. One that is placed worse would not have been.
_WIDEST = 8
# So many points on either side speak for its levels, and no point for more than so many deviations: hiccups.
_REACH, _LOUDEST = 12, 4.0
# The median of |a - b| of two normal values is so many deviations of one.
_TO_DEVIATION = 1 / (0.6745 * math.sqrt(2))
# Code layout alone moves levels so far: no noise is smaller (log ratio).
_LEAST_NOISE = 0.0015


def likely_span(points: Sequence[ChangePoint], places: Sequence[int]) -> Span:
    """Where the step of these timelines may lie, given what they show together, among the heads at `places` (in order).

    What moves within a few heads is published at one of them, though it may be two changes: so the points themselves
    say where their step is, and where it was published is only where to look first. A machine that skipped heads says
    nothing about them.
    """
    at = max(min(bisect_left(places, points[0].place), len(places) - 1), 1)
    low = bisect_left(places, min(point.before_place for point in points))
    timelines = [(watch := stored_watch(point.timeline), _between_steps(watch, point)) for point in points]
    first = max(min(low, at) - _WIDEST, bisect_right(places, max(between.before for _, between in timelines)), 1)
    last = min(at + _WIDEST, bisect_left(places, min(between.after for _, between in timelines)) - 1)
    near = range(min(first, at), max(last, at) + 1)
    possible = range(at, at + 1)
    for _ in range(_TRIES):
        evidence = [_Evidence.of(watch, places[at], between) for watch, between in timelines]
        best, possible = _reached({k: sum(one.against(places[k]) for one in evidence) for k in near}, at)
        if best == at:
            break
        at = best
    return Span(places[possible[0] - 1], places[possible[-1]])


def _between_steps(watch: Watch, point: ChangePoint) -> Span:
    """The places of the steps beside this one on its timeline: its levels reach to them and not further.

    Two steps of one direction near each other are one to the watch.
    """
    at = bisect_left(watch.revisions, point.place)
    before, after = -1, watch.revisions[-1] + 1 if watch.revisions else point.place + 1
    for other in watch.published:
        apart = bisect_left(watch.revisions, other.revision) - at
        same = abs(apart) < NEAR and (other.effect > 0) == (point.effect > 0)
        if apart and not same and other.state != StepState.WITHDRAWN:
            before, after = (max(before, other.revision), after) if apart < 0 else (before, min(after, other.revision))
    return Span(before, after)


def _reached(against: Mapping[int, float], start: int) -> tuple[int, range]:
    """The likeliest place where that is surely another one, and all from the first to the last not ruled out beside it.

    What lies behind a place that is ruled out is another step: back to the old level, for example.
    """
    best, reached = start, [start]
    for way in (range(start - 1, min(against) - 1, -1), range(start + 1, max(against) + 1)):
        for k in way:
            if against[k] > against[best] + _RULED_OUT:
                break
            reached.append(k)
            best = min(best, k, key=lambda one: (against[one], abs(one - start)))
    best = best if against[start] - against[best] > _OVERRULED else start
    possible = [k for k in reached if against[k] <= against[best] + _RULED_OUT]
    return best, range(min(possible), max(possible) + 1)


@dataclass(frozen=True, eq=False)
class _Evidence:
    """The last points of a timeline around a step; for each, how much more it speaks for the new level."""

    place: int
    revisions: Sequence[int]
    speaks: Floats

    @classmethod
    def of(cls, watch: Watch, place: int, between: Span) -> "_Evidence":
        """For a step that is thought to be at this place: its levels are read there, as far as other steps let."""
        values = np.log(np.maximum(np.array(watch.values, dtype=np.float64), np.finfo(np.float64).tiny))
        at = bisect_left(watch.revisions, place)
        first, last = bisect_left(watch.revisions, between.before), bisect_left(watch.revisions, between.after)
        before, after = values[max(at - _REACH, first) : at], values[at : min(at + _REACH, last)]
        if not before.size or not after.size:
            return cls(place, (), values[:0])
        noise = max(median(np.abs(np.diff(values))) * _TO_DEVIATION, _LEAST_NOISE)
        old, new = (np.minimum(((values - median(side)) / noise) ** 2, _LOUDEST**2) for side in (before, after))
        return cls(place, watch.revisions, (old - new) / 2)

    def against(self, place: int) -> float:
        """How much the points speak for where the step is thought to be, and against this place (log likelihood)."""
        low, high = sorted((bisect_left(self.revisions, place), bisect_left(self.revisions, self.place)))
        between = float(self.speaks[low:high].sum())
        return between if place > self.place else -between


_STANDING = (ChangePoint.State.SUSPECT, ChangePoint.State.SETTLED)
# A step back of less than this share of the step does not mend it, nor one that fewer of its timelines show: most of
# the other changes of a branch touch some of them.
_LARGE_ENOUGH = 0.5
_MANY_ENOUGH = 0.5


@dataclass(frozen=True)
class StepBack:
    """A step that may mend a finding; `revision` is the first measured head of the new level."""

    change_point: ChangePoint
    place: int
    revision: Revision


def change_points_after(finding: Finding) -> list[StepBack]:
    """Where the finding's regressed timelines went back, by half of the step or more, in order of place.

    On each of its microarchitectures half of them or more must have done so, within two heads; a machine that was
    measured no more does not count. Only steps after the head that the finding ends at; of a finding without timelines
    there are none.
    """
    own = _regressed(finding)
    ends = MeasuredHead.objects.filter(branch=finding.branch_id, revision=finding.after_id)
    end = min(ends.values_list("place", flat=True), default=None)
    if not own or end is None:
        return []
    later = ChangePoint.objects.filter(timeline__in=own, place__gt=end, state__in=_STANDING)
    back: dict[int, list[ChangePoint]] = defaultdict(list)
    for point in later.order_by("place", "pk"):
        if -point.effect / own[point.timeline_id].effect >= _LARGE_ENOUGH:
            back[point.place].append(point)
    if not back:
        # Sweeps ask this of every regression, and most of them never went back.
        return []
    heads = MeasuredHead.objects.filter(branch=finding.branch_id, place__range=(min(back), max(back)))
    heads = heads.exclude(fleet=None)
    places = sorted(set(heads.values_list("place", flat=True)))
    found = []
    for number, place in enumerate(places):
        near = places[max(number - SAME_WITHIN, 0) : number + 1]
        gone = {point.timeline_id for one in near for point in back.get(one, ())}
        if place in back and _most(gone, own, place):
            found.append(place)
    revisions = {head.place: head.revision for head in heads.filter(place__in=found).select_related("revision")}
    return [StepBack(back[place][0], place, revisions[place]) for place in found]


def _regressed(finding: Finding) -> Mapping[int, ChangePoint]:
    """The finding's steps for the worse that are sure, by timeline."""
    points = finding.change_points.filter(state=ChangePoint.State.SETTLED)
    rows = points.select_related("timeline__machine", "timeline__metric").defer("timeline__watch").order_by("pk")
    return {point.timeline_id: point for point in rows if is_worse(point)}


def _most(gone: Collection[int], own: Mapping[int, ChangePoint], place: int) -> bool:
    """Whether enough of the timelines of each microarchitecture that was measured at this place are among those."""
    every, some = defaultdict[int, int](int), defaultdict[int, int](int)
    for name, point in own.items():
        if point.timeline.last_place >= place:
            every[point.timeline.machine.uarch_id] += 1
            some[point.timeline.machine.uarch_id] += name in gone
    return bool(every) and all(some[uarch] >= _MANY_ENOUGH * count for uarch, count in every.items())

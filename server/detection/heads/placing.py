"""Where the step of some timelines surely lies, by what their own points say."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from server.detection.heads.boundaries import Span
from server.detection.heads.fleets import stored_watch
from server.detection.models import ChangePoint
from server.stats.noise import median
from server.stats.timelines import Floats
from server.stats.watch import NEAR
from server.stats.watch_state import State, Watch

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
        if apart and not same and other.state != State.WITHDRAWN:
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

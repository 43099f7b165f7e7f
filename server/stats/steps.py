"""From candidates to steps: the weakest cut goes first, until all that are left are sure."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from server.stats.courses import step_share
from server.stats.noise import median
from server.stats.spread import FEWEST_POINTS, Scale, contrast
from server.stats.timelines import Floats

# -log10 of the p-value that a cut must reach: 5e-5, since a few hundred positions are tried on each timeline.
STRICT = -math.log10(5e-5)
# What stands only while weaker cuts stand beside it is not sure, whatever its own evidence.
WEAK = 0.99 * STRICT
# Smaller steps are not worth a report: code layout and other chance move benchmarks as much. A log ratio. Down to the
# second figure they are reported when they are so many deviations large that anyone would see them.
LEAST_EFFECT, LEAST_PLAIN_EFFECT, PLAIN = 0.01, 0.007, 5.0
# A cut may move by so many points to its best place, and no point speaks for more than so many deviations there.
NUDGE = 5
LOUDEST = 3.0


Judge = Callable[[Floats, Floats, Scale], float]


@dataclass(frozen=True)
class Step:
    """A nominated change of level.

    `index` is the first point of the new regime among the given values, `revision` its position in history. `effect`
    is the log ratio after/before (in a timeline with values that have no logarithm, the difference in units of the
    usual value). `score` is -log10 of its p-value, comparable between timelines. `points` is the number of values
    since, up to the next step.
    """

    index: int
    revision: int
    effect: float
    score: float
    points: int


@dataclass(frozen=True)
class Cut:
    """A cut that stays: its place among the points, difference and noise of its sides, the evidence for a step."""

    place: int
    difference: float
    noise: float
    evidence: float


def steps_from(values: Floats, candidates: list[int], scale: Scale, threshold: float) -> list[Cut]:
    """The cuts among the candidates that reach the threshold and are large enough, in order of place.

    Small but sure cuts stay until the end: without them the levels that others are held against would be mixed.
    """
    places = _without_hiccups(values, candidates)
    for judge in (_plain, _beside_slope):
        places = _prune(values, places, scale, threshold, judge)
    places = _nudge(values, places, scale.noise)
    found = [_cut(left, right, place, scale) for place, left, right in _sides(values, places)]
    return [cut for cut in found if cut.evidence >= threshold and _matters(cut)]


def with_weak(sure: list[Cut], others: list[Cut]) -> list[Cut]:
    """The sure cuts as they are, and of the others those that lie elsewhere."""
    weak = [
        replace(cut, evidence=min(cut.evidence, WEAK))
        for cut in others
        if all(abs(cut.place - one.place) >= FEWEST_POINTS for one in sure)
    ]
    return sorted(sure + weak, key=lambda cut: cut.place)


def bends_at(values: Floats, places: list[int], scale: Scale) -> list[Cut]:
    """Breaks of a course that are large enough; where the counts of points allow no evidence, it was a hiccup."""
    found = [(place, contrast(left, right, scale)) for place, left, right in _sides(values, places)]
    cuts = [Cut(place, one.difference, one.noise, one.evidence()) for place, one in found]
    return [cut for cut in cuts if abs(cut.difference) >= LEAST_EFFECT and cut.evidence > 0]


def _sides(values: Floats, places: list[int]) -> Iterator[tuple[int, Floats, Floats]]:
    """Each place with the points on its two sides, up to its neighbours."""
    edges = [0, *places, len(values)]
    for before, place, after in zip(edges, edges[1:], edges[2:], strict=False):
        yield place, values[before:place], values[place:after]


def _cut(left: Floats, right: Floats, place: int, scale: Scale) -> Cut:
    found = contrast(left, right, scale)
    return Cut(place, found.difference, found.noise, found.evidence(step_share(left, right, found.noise)))


def _plain(left: Floats, right: Floats, scale: Scale) -> float:
    return contrast(left, right, scale).evidence()


def _beside_slope(left: Floats, right: Floats, scale: Scale) -> float:
    return _cut(left, right, 0, scale).evidence


def _matters(cut: Cut) -> bool:
    size = abs(cut.difference)
    return size >= LEAST_EFFECT or size >= max(LEAST_PLAIN_EFFECT, PLAIN * cut.noise)


def _prune(values: Floats, places: list[int], scale: Scale, threshold: float, judge: Judge) -> list[int]:
    edges = [0, *places, len(values)]

    def evidence(i: int) -> float:
        return judge(values[edges[i - 1] : edges[i]], values[edges[i] : edges[i + 1]], scale)

    # Both ends hold themselves for sure.
    sure = [math.inf, *(evidence(i) for i in range(1, len(edges) - 1)), math.inf]
    while (least := min(sure)) < threshold:
        i = sure.index(least)
        del edges[i], sure[i]
        for j in (i - 1, i):
            if 0 < j < len(edges) - 1:
                sure[j] = evidence(j)
    return edges[1:-1]


def _without_hiccups(values: Floats, places: list[int]) -> list[int]:
    """Segments that are too short join the neighbour whose level is nearer, the shortest first."""
    edges = [0, *places, len(values)]
    while edges[1:-1]:
        sizes = [b - a for a, b in pairwise(edges)]
        i = sizes.index(min(sizes))
        if sizes[i] >= FEWEST_POINTS:
            break
        if i in (0, len(sizes) - 1):
            del edges[1 if i == 0 else -2]
            continue
        own, before, after = (median(values[edges[j] : edges[j + 1]]) for j in (i, i - 1, i + 1))
        del edges[i if abs(own - before) <= abs(own - after) else i + 1]
    return edges[1:-1]


def _nudge(values: Floats, places: list[int], noise: float) -> list[int]:
    """Each cut where the points around it best split into those nearer to the level before and to that after."""
    edges = [0, *places, len(values)]
    for i in range(1, len(edges) - 1):
        place = edges[i]
        old, new = median(values[edges[i - 1] : place]), median(values[place : edges[i + 1]])
        low = max(edges[i - 1] + FEWEST_POINTS, place - NUDGE)
        near = values[low : min(edges[i + 1] - FEWEST_POINTS, place + NUDGE)]
        loss_old, loss_new = (np.minimum(((near - level) / noise) ** 2, LOUDEST**2) for level in (old, new))
        gain = np.concatenate([[0.0], np.cumsum(loss_new - loss_old)])
        best = int(gain.argmax())
        if gain[best] > gain[place - low]:
            edges[i] = low + best
    return edges[1:-1]

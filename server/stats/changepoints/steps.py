"""From candidates to steps: how sure a cut is and which course its points take; the weakest goes first."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np

from server.stats.changepoints.timeline import MAD_TO_DEVIATION, Floats, Ints, mean, median, within
from server.stats.functions import special


def crossing_evidence(left: Floats, right: Floats, middle: float) -> float:
    """-log10 of Fisher's exact p-value (J. R. Stat. Soc. 98, 1935) of the counts above `middle` on the two sides.

    One tail, towards the difference that is seen, and doubled. A mode that both sides visit counts as what it is.
    """
    n, m = len(left), len(right)
    above_left = int(np.count_nonzero(left > middle))
    above = above_left + int(np.count_nonzero(right > middle))
    # The tail runs away from the share that both sides together would give to the left one.
    counts = np.arange(max(0, above - m), min(n, above) + 1)
    tail = counts[counts >= above_left] if above_left * (n + m) > above * n else counts[counts <= above_left]
    logs = _log_choose(n, tail) + _log_choose(m, above - tail) - _log_choose(n + m, np.array([above]))
    return max(-float(special.logsumexp(logs) + np.log(2)) / float(np.log(10)), 0.0)


def _log_choose(n: int, k: Ints) -> Floats:
    return np.asarray(special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1))


# Points on either side of a cut that are looked at: beyond, other things speak than the step.
REACH = 50
# The timeline's own noise counts like so many points when the spread beside a cut is judged.
PRIOR_POINTS = 12
# Huber's bound (Ann. Math. Stat. 35, 1964) in deviations: the mean of values drawn in to it is 95 % efficient under
# normal noise, and its variance 8 % larger than that of the mean.
HUBER_BOUND = 1.5
HUBER_VARIANCE = 1.08
# Levels of long stretches wander by about this share of one point's deviation, however many points are averaged.
WANDER = 0.15
# What lasts for fewer points than this is a hiccup.
FEWEST_POINTS = 4
# Points beyond so many deviations are hiccups; where more than this share of all points are, the benchmark alternates
# between modes, its spread says little, and the counts of points on either side must bear the evidence too.
# Fewer than three are a hiccup however short the sides are.
FAR, ALTERNATING_SHARE, FEWEST_FAR = 3.5, 0.12, 3
# Evidence ends here: below 1e-300 a p-value says no more.
MOST_EVIDENCE = 300.0


@dataclass(frozen=True)
class Scale:
    """What is known of a timeline as a whole.

    The deviation of one point, the variance ratio of correlated runs, and by how much the level moves between two
    points where no step is.
    """

    noise: float
    inflation: float = 1.0
    trend: float = 0.0


@dataclass(frozen=True)
class Contrast:
    """Two sides of a cut: difference of their levels (right - left), deviation of one point, t statistic, freedom.

    `ceiling` is the most evidence that the counts of points on either side of the middle allow.
    """

    difference: float
    noise: float
    t: float
    freedom: float
    ceiling: float

    def evidence(self, share: float = 1.0) -> float:
        """-log10 of the two-sided p-value of the given share of the t statistic, as far as the counts agree."""
        p = 2 * float(special.stdtr(self.freedom, -abs(self.t * share)))
        return min(max(-math.log10(p), 0.0), self.ceiling) if p > 0 else self.ceiling


def contrast(left: Floats, right: Floats, scale: Scale) -> Contrast:
    """Compare the points beside a cut in the manner of a t test, with levels and spread that hiccups cannot move.

    The spread is pooled from both sides and drawn towards the timeline's own noise; its variance is raised for
    correlated runs, and by that of a level that wanders. Where the timeline has a trend, a part of the difference may
    be that: the step is what is left beside it.
    """
    a, b = left[-REACH:], right[:REACH]
    middle_a, middle_b = median(a), median(b)
    rest_a, rest_b = a - middle_a, b - middle_b
    rest = np.abs(np.concatenate([rest_a, rest_b]))
    own = MAD_TO_DEVIATION * median(rest) * len(rest) / max(len(rest) - 2, 1)
    pooled = math.sqrt((PRIOR_POINTS * scale.noise**2 + len(rest) * own**2) / (PRIOR_POINTS + len(rest)))
    bound = HUBER_BOUND * pooled
    drawn_a, drawn_b = within(rest_a, -bound, bound) + middle_a, within(rest_b, -bound, bound) + middle_b
    left_level, right_level = mean(drawn_a), mean(drawn_b)
    difference = right_level - left_level
    variance = HUBER_VARIANCE * scale.inflation * pooled * pooled
    step, error = difference, math.sqrt(variance * (1 / len(a) + 1 / len(b)))
    if scale.trend:
        step, error = _step_beside_trend(drawn_a, drawn_b, variance, scale.trend)
        # A fall upon a rise is no evidence for the rise that the levels show.
        step = step if step * difference > 0 else 0.0
    error = math.hypot(error, WANDER * pooled)
    middle = (left_level + right_level) / 2
    settled = all(
        np.count_nonzero((side > middle) == (level > middle)) >= FEWEST_POINTS
        for side, level in ((a, left_level), (b, right_level))
    )
    far = np.count_nonzero(rest > FAR * pooled)
    alternates = far >= FEWEST_FAR and far > ALTERNATING_SHARE * len(rest)
    ceiling = 0.0 if not settled else crossing_evidence(a, b, middle) if alternates else MOST_EVIDENCE
    return Contrast(difference, pooled, step / error, PRIOR_POINTS + len(rest) - 2, ceiling)


def _step_beside_trend(left: Floats, right: Floats, variance: float, trend: float) -> tuple[float, float]:
    """The step between two sides, and its standard error, where a slope of this deviation runs through all points.

    Mean and standard deviation of the step given the values, when nothing is known of it and the slope is normal around
    zero (Lindley and Smith, J. R. Statist. Soc. B 34, 1972).
    """
    a, b = len(left), len(right)
    n = a + b
    values = np.concatenate([left, right])
    # Sums of squares and products of the step (0, then 1), the time and the values, each around its mean.
    ss, ts, sv = a * b / n, a * b / 2, a * b / n * (mean(right) - mean(left))
    tv = float((np.arange(n) - (n - 1) / 2) @ values)
    tt = n * (n * n - 1) / 12 + variance / trend / trend
    rest = ss - ts * (ts / tt)
    return (sv - ts * (tv / tt)) / rest, math.sqrt(variance / rest)


# Points on either side; drift over longer stretches is left to the spread.
COURSE_REACH = 30
# Values are drawn in to so many deviations from the median of their side.
BOUND = 2.5
# A wave can tell much; it is believed on very strong evidence only, a difference of 10 in BIC (Kass and Raftery, J. Am.
# Stat. Assoc. 90, 1995).
WAVE_MARGIN = 10.0
# Fits closer than this share of the noise are equally good: values on a grid can be fitted without any error.
CLOSEST_FIT = 0.1


def step_share(left: Floats, right: Floats, noise: float) -> float:
    """How much of the step's t statistic stays when a slope through both sides may explain a part of it, 0 to 1.

    0: a line, or a wave, tells the values without any step. 1: no slope is needed. Between: a step upon a slope is the
    better tale (Schwarz, Ann. Stat. 6, 1978, for the criterion). `noise` is the deviation of one point.
    """
    a, b = _drawn_in(left[-COURSE_REACH:], noise), _drawn_in(right[:COURSE_REACH], noise)
    values = np.concatenate([a, b])
    n = len(values)
    time = np.arange(n) - (n - 1) / 2
    after = np.where(np.arange(n) < len(a), 0.0, 1.0) - len(b) / n
    values = values - mean(values)
    # Sums of squares and products give all three fits in closed form.
    tt, ss, ts = float(time @ time), float(after @ after), float(time @ after)
    tv, sv, vv = float(time @ values), float(after @ values), float(values @ values)
    determinant = tt * ss - ts * ts
    step_of_both = (sv * tt - tv * ts) / determinant
    slope_of_both = (tv * ss - sv * ts) / determinant
    floor = n * (CLOSEST_FIT * noise) ** 2
    line = max(vv - tv * tv / tt, floor)
    step = max(vv - sv * sv / ss, floor)
    both = max(vv - slope_of_both * tv - step_of_both * sv, floor)
    # The line has as many parameters as the step (with its place); both together have one more.
    bic_line, bic_step = n * math.log(line / floor), n * math.log(step / floor)
    bic_both = n * math.log(both / floor) + math.log(n)
    best = min(bic_step, bic_both)
    if bic_line <= best or _bic_of_wave(values, floor) <= best - WAVE_MARGIN:
        return 0.0
    if bic_both >= bic_step:
        return 1.0
    plain = sv / ss
    t_ratio = step_of_both / plain * math.sqrt(step * (n - 3) * determinant / (both * (n - 2) * tt * ss))
    return min(max(t_ratio, 0.0), 1.0)


def _bic_of_wave(values: Floats, floor: float) -> float:
    """A cubic, which has the room for a whole wave; on the scale of the other criteria."""
    n = len(values)
    told = _cubics(n) @ values
    left = float(values @ values) - float(told @ told)
    return n * math.log(max(left, floor) / floor) + 2 * math.log(n)


@lru_cache(maxsize=2 * COURSE_REACH)
def _cubics(n: int) -> Floats:
    """(3, n) orthonormal cubics without a constant, since the values have none."""
    time = np.linspace(-1.0, 1.0, n)
    basis, _ = np.linalg.qr(np.stack([np.ones(n), time, time**2, time**3], axis=1))
    return np.ascontiguousarray(basis.T[1:])


def _drawn_in(values: Floats, noise: float) -> Floats:
    middle = median(values)
    return within(values, middle - BOUND * noise, middle + BOUND * noise)


# -log10 of the p-value that a cut must reach: 2e-4, so that one timeline in 20 without a change errs, since some 250
# places are tried on each.
STRICT = -math.log10(0.05 / 250)
# What stands only while weaker cuts stand beside it is not sure, whatever its own evidence.
WEAK = 0.99 * STRICT
# Smaller steps are not worth a report: code layout and other chance move benchmarks as much. A log ratio, a little
# below the 1 % from which on a change gets a verdict: of changes of that size half are seen as smaller.
LEAST_EFFECT = 0.009


# Evidence for a cut by where the segment before it begins, its place, and where the one after it ends.
Judge = Callable[[int, int, int], float]


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
    """A cut that stays: its place among the points, the difference of its sides, the evidence for a step."""

    place: int
    difference: float
    evidence: float


class Cuts:
    """What the points beside the cuts of one timeline say; remembered, since the same cuts are asked for many times."""

    def __init__(self, values: Floats, scale: Scale) -> None:
        self.values = values
        self._scale = scale
        self._contrasts: dict[tuple[int, int, int], Contrast] = {}
        self._cuts: dict[tuple[int, int, int], Cut] = {}

    def plain(self, start: int, place: int, end: int) -> float:
        """The evidence of a cut between its neighbours."""
        return self._contrast(start, place, end).evidence()

    def beside_slope(self, start: int, place: int, end: int) -> float:
        return self.cut(start, place, end).evidence

    def cut(self, start: int, place: int, end: int) -> Cut:
        reach = max(REACH, COURSE_REACH)
        key = max(start, place - reach), place, min(end, place + reach)
        if key not in self._cuts:
            found = self._contrast(*key)
            share = step_share(self.values[key[0] : place], self.values[place : key[2]], found.noise)
            self._cuts[key] = Cut(place, found.difference, found.evidence(share))
        return self._cuts[key]

    def _contrast(self, start: int, place: int, end: int) -> Contrast:
        key = max(start, place - REACH), place, min(end, place + REACH)
        if key not in self._contrasts:
            self._contrasts[key] = contrast(self.values[key[0] : place], self.values[place : key[2]], self._scale)
        return self._contrasts[key]


def steps_from(cuts: Cuts, candidates: list[int], threshold: float) -> list[Cut]:
    """The cuts among the candidates that reach the threshold and are large enough, in order of place.

    Small but sure cuts stay until the end: without them the levels that others are held against would be mixed.
    """
    places = _without_hiccups(cuts.values, candidates)
    for judge in (cuts.plain, cuts.beside_slope):
        places = _prune(places, len(cuts.values), threshold, judge)
    edges = [0, *places, len(cuts.values)]
    found = [cuts.cut(*around) for around in zip(edges, edges[1:], edges[2:], strict=False)]
    return [cut for cut in found if cut.evidence >= threshold and abs(cut.difference) >= LEAST_EFFECT]


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
    cuts = [Cut(place, one.difference, one.evidence()) for place, one in found]
    return [cut for cut in cuts if abs(cut.difference) >= LEAST_EFFECT and cut.evidence > 0]


def _sides(values: Floats, places: list[int]) -> Iterator[tuple[int, Floats, Floats]]:
    """Each place with the points on its two sides, up to its neighbours."""
    edges = [0, *places, len(values)]
    for before, place, after in zip(edges, edges[1:], edges[2:], strict=False):
        yield place, values[before:place], values[place:after]


def _prune(places: list[int], end: int, threshold: float, judge: Judge) -> list[int]:
    edges = [0, *places, end]

    def evidence(i: int) -> float:
        return judge(edges[i - 1], edges[i], edges[i + 1])

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

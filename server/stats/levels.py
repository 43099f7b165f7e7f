"""What false alarms may cost, in one place: the family's adjustment, and the level of each look of a session."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from server.stats.cells import CellComparison, NoVerdict, StatisticalVerdict
from server.stats.functions import optimize, special

FALSE_DISCOVERY_RATE = 0.05


def benjamini_hochberg(p_values: Sequence[float]) -> npt.NDArray[np.float64]:
    """Adjusted p-values: those at or below q are the discoveries at false discovery rate q.

    Benjamini and Hochberg, J. R. Statist. Soc. B 57 (1995): the step-up procedure.
    """
    p = np.asarray(p_values, dtype=np.float64)
    if p.size and not bool(np.all((p >= 0) & (p <= 1))):
        raise ValueError("p-values lie between 0 and 1")
    order = np.argsort(p)[::-1]
    # The largest is multiplied with exactly one, so that no p-value is adjusted below itself.
    scaled = p[order] * (p.size / np.arange(p.size, 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(np.minimum.accumulate(scaled), 1.0)
    return adjusted


def judge_family(comparisons: Sequence[CellComparison], *, families: int = 1) -> list[CellComparison]:
    """Adjust over all cells that could be tested; a change that does not survive it is inconclusive.

    Cells of a sequential design come as `CellProgress.comparison`, with the p-value of the whole design.
    Of several `families` that are reported together each gets its equal share of the false discovery rate q: the false
    share of all discoveries is at most the sum of those of the families, so its mean is at most q, however families
    hang together and whatever the values of the others are. `family_size` is what a p-value is multiplied with.
    """
    if families < 1:
        raise ValueError("a family is one of at least one")
    tested = [c.p_value for c in comparisons if c.p_value is not None]
    adjusted = iter(np.minimum(benjamini_hochberg(tested) * families, 1.0))
    size = len(tested) * families
    return [
        c._replace(family_size=size) if c.p_value is None else _judge(c, float(next(adjusted)), size)
        for c in comparisons
    ]


def _judge(comparison: CellComparison, adjusted: float, family_size: int) -> CellComparison:
    judged = comparison._replace(p_adjusted=adjusted, family_size=family_size)
    claims_change = comparison.verdict in (StatisticalVerdict.REGRESSED, StatisticalVerdict.IMPROVED)
    if not claims_change or adjusted <= FALSE_DISCOVERY_RATE:
        return judged
    reason = (
        f"{comparison.verdict} on its own, but among {family_size} cells chance may do this (adjusted p {adjusted:.2g})"
    )
    return judged._replace(verdict=StatisticalVerdict.INCONCLUSIVE, reason=reason, reason_code=NoVerdict.ADJUSTED)


# What one interval leaves out by chance.
_BY_CHANCE = 0.05


def is_crowd(leaning: int, among: int) -> bool:
    """Whether more of so many intervals leave out "no difference" than chance explains.

    Cells that share their boots lean together more easily than independent ones: then it says so too often, not too
    seldom. One alone is judged by its own adjusted p-value.
    """
    return leaning > 1 and float(special.bdtrc(leaning - 1, among, _BY_CHANCE)) <= FALSE_DISCOVERY_RATE


# With -4 the boundaries are nearly those of O'Brien and Fleming (Biometrics 35, 1979): early looks stop for large
# effects only, and the last look keeps nearly the level of a design without early looks.
GAMMA = -4.0
# Beyond this everything is spent at the first look, or nothing before the last; the exponential would overflow.
STEEPEST_GAMMA = 100.0


def spent(fraction: float, alpha: float, *, gamma: float = GAMMA) -> float:
    """The part of `alpha` that may be used up when `fraction` of the information has been seen.

    alpha * (1 - exp(-gamma * t)) / (1 - exp(-gamma)), linear for gamma = 0 (Hwang, Shih and DeCani, Statistics in
    Medicine 9, 1990). The information fraction t is cut to 0 to 1. ValueError for what is no number.
    """
    if not (math.isfinite(fraction) and abs(gamma) <= STEEPEST_GAMMA):
        raise ValueError(f"information fraction {fraction!r} with gamma {gamma!r}: both must be finite, gamma moderate")
    share = min(max(fraction, 0.0), 1.0)
    if gamma == 0:
        return alpha * share
    return alpha * math.expm1(-gamma * share) / math.expm1(-gamma)


def information(base: int, patched: int, planned: int) -> float:
    """The share of a design's information in this many boots, when `planned` boots a side are all of it.

    The variance of a difference of means goes with 1/base + 1/patched, so arms of different size count as their
    harmonic mean. 1 when the plan is fulfilled or exceeded.
    """
    if base <= 0 or patched <= 0:
        return 0.0
    return min(1.0, 2 / (1 / base + 1 / patched) / planned)


Floats = npt.NDArray[np.float64]
# Points of the grid on which the distribution of the running sum is kept; 400 give levels to four digits.
_GRID = 401
# No distribution is followed further out: a normal value beyond 8 deviations is rarer than 1e-15.
_FARTHEST = 8.0
# A look that may spend less than this decides nothing.
_LEAST_SPENT = 1e-9
# The quantile of zero is infinite.
_LEAST_P = 1e-300


@dataclass(frozen=True)
class Level:
    """One look: its information fraction, its two-sided nominal level, and the alpha spent before it and with it."""

    fraction: float
    nominal: float
    spent_before: float
    spent: float


@dataclass(frozen=True)
class _Running:
    """The sub-density of the running sum where no look has stopped yet, with the weights of its grid."""

    points: Floats
    weighted: Floats
    information: float

    def beyond(self, bound: float, fraction: float) -> float:
        """Probability of not having stopped yet and then lying beyond +- `bound` deviations at `fraction`."""
        scale = math.sqrt(fraction - self.information)
        edge = bound * math.sqrt(fraction)
        tails = special.ndtr((self.points - edge) / scale) + special.ndtr((-edge - self.points) / scale)
        return float(np.sum(tails * self.weighted))

    def after(self, bound: float, fraction: float) -> "_Running":
        scale = math.sqrt(fraction - self.information)
        points, weights = _grid(min(bound, _FARTHEST) * math.sqrt(fraction))
        steps = (points[:, None] - self.points[None, :]) / scale
        density = np.exp(-0.5 * steps**2) @ self.weighted / (scale * math.sqrt(2 * math.pi))
        return _Running(points, density * weights, fraction)


_START = _Running(np.zeros(1), np.ones(1), 0.0)


@lru_cache(maxsize=512)
def levels(fractions: tuple[float, ...], alpha: float, gamma: float, *, ended: bool = False) -> tuple[Level, ...]:
    """The nominal level of each look at increasing information `fractions`, the last of which may be at most 1.

    With `ended` the last look may use up all that is left of alpha, because no other follows. ValueError when the
    fractions do not increase.

    Under no effect the statistics of the looks are those of a Brownian motion seen at these times; the bound of each
    look is set so that stopping there first has the probability that the spending function still grants (Lan and
    DeMets, Biometrika 70, 1983), by recursive integration (Armitage, McPherson and Rowe, J. R. Statist. Soc. A 132,
    1969). A level is compared with the p-value of a t test, not with a normal bound, which keeps the rates with few
    boots (the significance level approach of Jennison and Turnbull, Group Sequential Methods, 2000).
    """
    found: list[Level] = []
    running, before = _START, 0.0
    for fraction in fractions:
        if not running.information < fraction <= 1:
            raise ValueError(f"information fractions {fractions!r} do not increase up to 1")
        last = ended and len(found) == len(fractions) - 1
        granted = spent(1.0 if last else fraction, alpha, gamma=gamma) - before
        bound = _bound(running, granted, fraction)
        spent_now = before + max(granted, 0.0)
        found.append(Level(fraction, 2 * float(special.ndtr(-bound)), before, spent_now))
        running, before = running.after(bound, fraction), spent_now
    return tuple(found)


def overall_p(looks: tuple[Level, ...], p_value: float, alpha: float) -> float:
    """The p-value of a whole design that reached the last of `looks` with this nominal p-value there.

    What earlier looks spent plus the chance of going on to this look and seeing as much: stage-wise ordering
    (Fairbanks and Madsen, Biometrika 69, 1982). Where the look does not reject, the alpha that later looks would have
    spent is added: paths that go on from here to a rejection are more extreme than one that ends here. So the result
    is at most alpha exactly when the look's level is reached, whatever made the design stop, and no level up to alpha
    is exceeded more often than it says. Above alpha it is a ranking only: giving up early depends on the data.
    """
    last = looks[-1]
    bound = -float(special.ndtri(max(p_value, _LEAST_P) / 2))
    seen_as_much = last.spent_before + _at_last(looks).beyond(bound, last.fraction)
    if p_value <= last.nominal:
        return min(seen_as_much, last.spent)
    return min(1.0, alpha + max(0.0, seen_as_much - last.spent))


@lru_cache(maxsize=512)
def _at_last(looks: tuple[Level, ...]) -> _Running:
    running = _START
    for level in looks[:-1]:
        running = running.after(-float(special.ndtri(level.nominal / 2)), level.fraction)
    return running


def _bound(running: _Running, granted: float, fraction: float) -> float:
    if granted < _LEAST_SPENT:
        return _FARTHEST
    return float(optimize.brentq(lambda bound: running.beyond(bound, fraction) - granted, 0.0, _FARTHEST, xtol=1e-10))


def _grid(edge: float) -> tuple[Floats, Floats]:
    """Simpson's rule from -edge to edge."""
    points = np.linspace(-edge, edge, _GRID)
    weights = np.full(_GRID, 2.0)
    weights[1::2] = 4.0
    weights[[0, -1]] = 1.0
    return points, weights * (points[1] - points[0]) / 3

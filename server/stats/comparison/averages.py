"""Which error structures fit a cell, and what they say of the difference on average: mixtures of t distributions."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from server.stats.cells import Floats
from server.stats.comparison.odd_boots import levels, outliers
from server.stats.comparison.structures import Batch, Structures, Terms, equal, separate, structures_of, sums_of

# The search for a quantile: a first pass to this share of the smallest scale in a few steps, a second one to the last.
_NEAR, _FEW_STEPS = 1e-2, 6
_CLOSE, _STEPS = 1e-5, 80
# After so many steps every second one halves the bracket.
_PATIENCE = 8
# What keeps scores and slopes finite.
_LEAST, _MOST = 1e-300, 1e-16


@dataclass(frozen=True)
class Mixture:
    """For each of M cells a weighted mean of T distributions; all fields are (M, T), the weights of a row sum to 1."""

    weight: Floats
    centre: Floats
    scale: Floats
    freedom: Floats

    def mean(self) -> Floats:
        return np.asarray(np.sum(self.weight * self.centre, axis=1))

    def take(self, rows: np.ndarray) -> "Mixture":
        return Mixture(self.weight[rows], self.centre[rows], self.scale[rows], self.freedom[rows])

    def mirrored(self) -> "Mixture":
        return Mixture(self.weight, -self.centre, self.scale, self.freedom)


def below(mixture: Mixture, at: Floats) -> Floats:
    """The probability below a point, one point (M,) for each cell."""
    standard = (at[:, None] - mixture.centre) / mixture.scale
    return np.asarray(np.sum(mixture.weight * special.stdtr(mixture.freedom, standard), axis=1))


def two_sided(mixture: Mixture) -> Floats:
    """Twice the smaller of the probabilities below and above zero, exact in far tails too."""
    sign = np.where(mixture.mean() < 0, -1.0, 1.0)
    facing = Mixture(mixture.weight, mixture.centre * sign[:, None], mixture.scale, mixture.freedom)
    tail = below(facing, np.zeros(len(sign)))
    return np.asarray(np.minimum(1.0, 2 * np.minimum(tail, 1 - tail)))


def lower_quantile(mixture: Mixture, probability: float) -> Floats:
    """Where the probability below is `probability` (under one half), one point for each cell.

    A quick approximation of the distributions leads near it, the exact ones take the last step.
    """
    fewest = mixture.freedom.min(axis=1)
    low = np.min(mixture.centre + mixture.scale * special.stdtrit(fewest, probability)[:, None], axis=1)
    high = np.max(mixture.centre + mixture.scale * special.ndtri(probability), axis=1)
    average = np.sum(mixture.weight * mixture.freedom, axis=1)
    mean = mixture.mean()
    spread = np.sqrt(np.sum(mixture.weight * (mixture.scale**2 + (mixture.centre - mean[:, None]) ** 2), axis=1))
    guess = np.clip(mean + special.stdtrit(average, probability) * spread, low, high)
    near = _solved(mixture, probability, guess, (low, high), _Pass(_nearly_below, _NEAR, _FEW_STEPS))
    return _solved(mixture, probability, near, (low, high), _Pass(_exactly_below, _CLOSE, _STEPS))


@dataclass(frozen=True)
class _Pass:
    """How one pass of the search goes: by which distribution function, to which precision, in how many steps."""

    below: Callable[[Floats, Floats, Floats], Floats]
    precision: float
    steps: int


def _solved(mixture: Mixture, probability: float, at: Floats, ends: tuple[Floats, Floats], how: _Pass) -> Floats:
    """Newton's method on the normal score of the probability, which is nearly a straight line, inside a bracket."""
    low, high = (end.copy() for end in ends)
    at, active, part = at.copy(), np.arange(len(at)), mixture
    constant = _log_constant(mixture.freedom) - np.log(mixture.scale)
    for count in range(how.steps):
        here = at[active]
        step = _newton(part, constant, here, probability, how)
        high[active] = np.where(step < 0, here, high[active])
        low[active] = np.where(step < 0, low[active], here)
        target = here + step
        halve = (target < low[active]) | (target > high[active]) | (count > _PATIENCE and count % 2 > 0)
        at[active] = np.where(halve, (low[active] + high[active]) / 2, target)
        # A step of Newton squares the distance, so what is left after a small one is far smaller.
        moving = halve | (np.abs(step) > how.precision * part.scale.min(axis=1))
        if not moving.any():
            break
        if not moving.all():
            active, part, constant = active[moving], part.take(moving), constant[moving]
    return at


def _newton(mixture: Mixture, constant: Floats, at: Floats, probability: float, how: _Pass) -> Floats:
    """The step that would reach the probability if its normal score were a straight line."""
    standard = (at[:, None] - mixture.centre) / mixture.scale
    logarithm = np.log1p(standard**2 / mixture.freedom)
    reached = np.sum(mixture.weight * how.below(standard, logarithm, mixture.freedom), axis=1)
    density = np.sum(mixture.weight * np.exp(constant - (mixture.freedom + 1) / 2 * logarithm), axis=1)
    score = special.ndtri(np.clip(reached, _LEAST, 1 - _MOST))
    slope = density / np.maximum(np.exp(-(score**2) / 2) / np.sqrt(2 * np.pi), _LEAST)
    return np.asarray((special.ndtri(probability) - score) / np.maximum(slope, _LEAST))


def _exactly_below(standard: Floats, _logarithm: Floats, freedom: Floats) -> Floats:
    return np.asarray(special.stdtr(freedom, standard))


def _nearly_below(standard: Floats, logarithm: Floats, freedom: Floats) -> Floats:
    """Student's distribution by that of a normal score (Hill, Communications of the ACM 13, 1970, algorithm 395)."""
    a = freedom - 0.5
    b = 48 * a**2
    y = a * logarithm
    tail = (((-0.4 * y - 3.3) * y - 24) * y - 85.5) / (0.8 * y**2 + 100 + b)
    score = ((tail + y + 3) / b + 1) * np.sqrt(y)
    return np.asarray(special.ndtr(np.copysign(score, standard)))


def _log_constant(freedom: Floats) -> Floats:
    """Logarithm of the height of Student's density at zero."""
    half = freedom / 2
    return np.asarray(special.gammaln(half + 0.5) - special.gammaln(half) - np.log(freedom * np.pi) / 2)


# The likeliest structures are averaged; the others together weigh too little to matter.
_KEPT = 10
# Less than one, so that structures of equal weight do not all vanish.
_ALMOST = 1 - 1e-9
# What kind of structure a term belongs to.
_EQUAL, _SEPARATE, _OUTLIER, _LEVELS, _TREND = range(5)


@dataclass(frozen=True)
class Averaged:
    """The difference of the arms on logs, patched less base, and how likely the peculiarities of a cell are, (M,)."""

    difference: Mixture
    separate: Floats  # the arms have variances of their own
    outlier: Floats  # one boot is an outlier, or two are
    levels: Floats  # the boots fall into two levels
    trend: Floats  # the machine drifts from boot to boot


def average(batch: Batch) -> Averaged:
    """What the structures say of the difference, each with the weight that its fit deserves.

    Each structure gives a t distribution; its weight is its prior times its marginal likelihood (Box and Tiao,
    Bayesian Inference in Statistical Analysis, 1973, chapter 2 and 5; Hoeting et al., Statistical Science 14, 1999).
    """
    sums = sums_of(batch)
    alone = equal(batch, sums)
    groups = [(_EQUAL, alone), (_SEPARATE, separate(batch, sums))]
    groups += [(_OUTLIER, terms) for terms in outliers(batch, sums, alone)]
    groups += [(_LEVELS, terms) for terms in levels(batch, sums, alone)]
    fields = ("log_weight", "centre", "variance", "freedom")
    terms = Terms(*(np.concatenate([getattr(group, field) for _, group in groups], axis=1) for field in fields))
    kinds = np.concatenate([np.full(group.log_weight.shape[1], kind) for kind, group in groups])
    kinds[np.flatnonzero(sums.structures.trend)] = _TREND
    return _averaged(batch, terms, kinds)


def _averaged(batch: Batch, terms: Terms, kinds: npt.NDArray[np.int64]) -> Averaged:
    # Rounding alone leaves nothing to weigh: the structure in which only the boots count.
    log_weight = np.where(batch.constant[:, None], -np.inf, terms.log_weight)
    log_weight[batch.constant, _boots_only(structures_of(batch.shape))] = 0.0
    if log_weight.shape[1] > _KEPT:
        kept = np.argpartition(-log_weight, _KEPT, axis=1)[:, : _KEPT + 1]
    else:
        kept = np.broadcast_to(np.arange(log_weight.shape[1]), log_weight.shape)
    log_weight = np.take_along_axis(log_weight, kept, axis=1)
    weight = np.exp(log_weight - log_weight.max(axis=1, keepdims=True))
    if weight.shape[1] > _KEPT:
        # Lowered by the first one left out, the weights run evenly to nothing: no tie is decided by rounding.
        weight, kept = (weight - weight[:, -1:] * _ALMOST)[:, :-1], kept[:, :-1]
    weight /= weight.sum(axis=1, keepdims=True)
    floor = batch.grid.sum(axis=1, keepdims=True)
    variance = np.maximum(np.take_along_axis(terms.variance, kept, axis=1), floor)
    centre, freedom = (np.take_along_axis(field, kept, axis=1) for field in (terms.centre, terms.freedom))
    shares = [np.sum(weight * (kinds[kept] == kind), axis=1) for kind in (_SEPARATE, _OUTLIER, _LEVELS, _TREND)]
    return Averaged(Mixture(weight, centre, np.sqrt(variance), freedom), *shares)


def _boots_only(structures: Structures) -> int:
    """The structure in which only boots' means count, without a trend."""
    return int(np.flatnonzero((structures.within_factor == 0) & ~structures.trend)[0])

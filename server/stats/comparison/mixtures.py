"""Mixtures of Student's distributions: probabilities and quantiles of many of them at once."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from server.stats.cells import Floats
from server.stats.functions import special

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
    logarithm = np.log1p(standard**2 / mixture.freedom)
    return np.asarray(np.sum(mixture.weight * _exactly_below(standard, logarithm, mixture.freedom), axis=1))


def two_sided(mixture: Mixture) -> Floats:
    """Twice the smaller of the probabilities below and above zero, exact in far tails too."""
    sign = np.where(mixture.mean() < 0, -1.0, 1.0)
    facing = Mixture(mixture.weight, mixture.centre * sign[:, None], mixture.scale, mixture.freedom)
    tail = below(facing, np.zeros(len(sign)))
    return np.asarray(np.minimum(1.0, 2 * np.minimum(tail, 1 - tail)))


def ends(mixture: Mixture, probability: float) -> tuple[Floats, Floats]:
    """Below and above which points only `probability` (under one half) is left, one of each for each cell.

    A quick approximation of the distributions leads near them, the exact ones take the last step.
    """
    fewest = special.stdtrit(mixture.freedom.min(axis=1), probability)
    usual = special.stdtrit(np.sum(mixture.weight * mixture.freedom, axis=1), probability)
    constant = _log_constant(mixture.freedom) - np.log(mixture.scale)
    found = []
    for facing in (mixture, mixture.mirrored()):
        low = np.min(facing.centre + facing.scale * fewest[:, None], axis=1)
        high = np.max(facing.centre + facing.scale * special.ndtri(probability), axis=1)
        mean = facing.mean()
        spread = np.sqrt(np.sum(facing.weight * (facing.scale**2 + (facing.centre - mean[:, None]) ** 2), axis=1))
        at = np.clip(mean + usual * spread, low, high)
        at = _solved(facing, constant, at, (low, high), _Pass(probability, _nearly_below, _NEAR, _FEW_STEPS))
        at = _solved(facing, constant, at, (low, high), _Pass(probability, _exactly_below, _CLOSE, _STEPS))
        found.append(at)
    return found[0], -found[1]


@dataclass(frozen=True)
class _Pass:
    """How one pass goes: to which probability, by which distribution function, how precisely, in how many steps."""

    probability: float
    below: Callable[[Floats, Floats, Floats], Floats]
    precision: float
    steps: int


def _solved(mixture: Mixture, constant: Floats, at: Floats, bracket: tuple[Floats, Floats], how: _Pass) -> Floats:
    """Newton's method on the normal score of the probability, which is nearly a straight line, inside a bracket."""
    low, high = (end.copy() for end in bracket)
    at, active, part = at.copy(), np.arange(len(at)), mixture
    for count in range(how.steps):
        here = at[active]
        step = _newton(part, constant, here, how)
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


def _newton(mixture: Mixture, constant: Floats, at: Floats, how: _Pass) -> Floats:
    """The step that would reach the probability if its normal score were a straight line."""
    standard = (at[:, None] - mixture.centre) / mixture.scale
    logarithm = np.log1p(standard**2 / mixture.freedom)
    reached = np.sum(mixture.weight * how.below(standard, logarithm, mixture.freedom), axis=1)
    density = np.sum(mixture.weight * np.exp(constant - (mixture.freedom + 1) / 2 * logarithm), axis=1)
    score = special.ndtri(np.clip(reached, _LEAST, 1 - _MOST))
    slope = density / np.maximum(np.exp(-(score**2) / 2) / np.sqrt(2 * np.pi), _LEAST)
    return np.asarray((special.ndtri(how.probability) - score) / np.maximum(slope, _LEAST))


# From so many degrees of freedom, and so near the middle, the approximation is as good as exact: to 2e-7 of the tail.
_MANY, _MIDDLE = 12.0, 6.0


def _exactly_below(standard: Floats, logarithm: Floats, freedom: Floats) -> Floats:
    found = _nearly_below(standard, logarithm, freedom)
    hard = (freedom < _MANY) | (np.abs(standard) > _MIDDLE)
    found[hard] = special.stdtr(freedom[hard], standard[hard])
    return found


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

"""Step, slope or wave: which course the points beside a cut take, told by the Bayesian information criterion."""

import math
from functools import lru_cache

import numpy as np

from server.stats.noise import median
from server.stats.timelines import Floats

# Points on either side; drift over longer stretches is left to the spread.
REACH = 30
# Values are drawn in to so many deviations from the median of their side.
BOUND = 2.5
# A difference of 2 in BIC is positive evidence (Kass and Raftery, J. Am. Stat. Assoc. 90, 1995).
MARGIN = 2.0
# A wave can tell much; it is believed on very strong evidence only, a difference of 10 (the same).
WAVE_MARGIN = 10.0
# Fits closer than this share of the noise are equally good: values on a grid can be fitted without any error.
CLOSEST_FIT = 0.1


def step_share(left: Floats, right: Floats, noise: float) -> float:
    """How much of the step's t statistic stays when a slope through both sides may explain a part of it, 0 to 1.

    0: a line, or a wave, tells the values without any step. 1: no slope is needed. Between: a step upon a slope is the
    better tale (Schwarz, Ann. Stat. 6, 1978, for the criterion). `noise` is the deviation of one point.
    """
    a, b = _drawn_in(left[-REACH:], noise), _drawn_in(right[:REACH], noise)
    values = np.concatenate([a, b])
    n = len(values)
    time = np.arange(n) - (n - 1) / 2
    after = np.where(np.arange(n) < len(a), 0.0, 1.0) - len(b) / n
    values = values - values.mean()
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
    if bic_line <= best + MARGIN or _bic_of_wave(values, floor) <= best - WAVE_MARGIN:
        return 0.0
    if bic_both >= bic_step - MARGIN:
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


@lru_cache(maxsize=2 * REACH)
def _cubics(n: int) -> Floats:
    """(3, n) orthonormal cubics without a constant, since the values have none."""
    time = np.linspace(-1.0, 1.0, n)
    basis, _ = np.linalg.qr(np.stack([np.ones(n), time, time**2, time**3], axis=1))
    return np.ascontiguousarray(basis.T[1:])


def _drawn_in(values: Floats, noise: float) -> Floats:
    middle = median(values)
    return np.clip(values, middle - BOUND * noise, middle + BOUND * noise)

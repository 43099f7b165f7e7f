"""From an interval to a verdict, and what else would have been seen."""

import math

import numpy as np

from server.stats.cells import Cell, Verdict
from server.stats.shapes import Floats

# Beyond these the exponential leaves the range of floats.
LARGEST_LOG = 700.0


def verdict_of(cell: Cell, low: float, high: float) -> Verdict:
    """`low` to `high` is the interval of the difference on logs; a verdict needs it wholly on one side of a limit."""
    limit = math.log1p(cell.min_effect)
    if -limit < low and high < limit:
        return Verdict.UNCHANGED
    if low > limit:
        return Verdict.REGRESSED if cell.better == "lower" else Verdict.IMPROVED
    if high < -limit:
        return Verdict.IMPROVED if cell.better == "lower" else Verdict.REGRESSED
    return Verdict.INCONCLUSIVE


def undecided(cell: Cell, ratio_low: float, ratio_high: float) -> str:
    """The reason of a cell whose interval allows no verdict."""
    return (
        f"the interval {ratio_low:.3g} to {ratio_high:.3g} lies neither within "
        f"nor beyond a change of {100 * cell.min_effect:g} %"
    )


def smallest_seen(*, min_effect: float, distance: float) -> float:
    """The minimum detectable effect: the change that this cell would have called with a probability of 80 %.

    A verdict needs the whole 95 % interval beyond `min_effect`. That happens with probability 0.80 when the true
    change lies (t[0.975] + t[0.80]) standard errors beyond it (Bloom, Evaluation Review 19, 1995: the same sum of two
    quantiles for a test against zero); `distance` is that product, on logs. It is never below `min_effect`, because
    smaller changes are called `unchanged` on purpose.
    """
    return math.expm1(min(math.log1p(min_effect) + distance, LARGEST_LOG))


def ratios(logs: Floats) -> list[float]:
    values: list[float] = np.exp(np.clip(logs, -LARGEST_LOG, LARGEST_LOG)).tolist()
    return values

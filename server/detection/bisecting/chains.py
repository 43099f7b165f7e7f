"""Ratios of a chain of measurements multiplied, with their uncertainty. No database in here."""

import math
from dataclasses import dataclass
from statistics import NormalDist

# Half the width of a 95 % interval, in standard errors.
_HALF = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True)
class Link:
    """A ratio on logs, with the square of its standard error."""

    log: float
    variance: float

    @property
    def ratio(self) -> float:
        return math.exp(self.log)

    @property
    def interval(self) -> tuple[float, float]:
        reach = _HALF * math.sqrt(self.variance)
        return math.exp(self.log - reach), math.exp(self.log + reach)


# What the same code adds.
NOTHING = Link(0.0, 0.0)


def link(ratio: float | None, low: float | None, high: float | None) -> Link | None:
    """From a ratio and its 95 % interval; None where it has none."""
    if not (ratio and low and high) or min(ratio, low, high) <= 0 or math.inf in (ratio, high):
        return None
    error = math.log(high / low) / (2 * _HALF)
    return Link(math.log(ratio), error * error)


def joined(one: Link | None, other: Link | None) -> Link | None:
    """The product. Each was measured with boots of its own, so the variances add."""
    if one is None or other is None:
        return None
    return Link(one.log + other.log, one.variance + other.variance)


def agree(one: Link, other: Link, *, cells: int, slack: float) -> bool:
    """Whether two ratios differ by no more than their errors allow, at 1 % over all `cells`, or by `slack`."""
    reach = NormalDist().inv_cdf(1 - 0.005 / cells) * math.sqrt(one.variance + other.variance)
    return abs(one.log - other.log) <= max(reach, math.log1p(slack))

"""How far a timeline moves at a given place: the small question that the fleet asks again and again."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from server.stats.changepoints.timeline import Floats, Ints, TimelineValues, median

# Points on either side of a place that speak for its levels. More would carry drift into the difference.
REACH = 18
# Share cut off at each end of a mean: a quarter survives hiccups and the rarer mode of a bimodal timeline.
TRIM = 0.25
# Fewer values than this have no quarter to cut: their median is taken.
FEWEST_TRIMMED = 4
# Correlation of neighbours above this is drift that was taken for noise; more would blind the test altogether.
HIGHEST_CORRELATION = 0.6
# Fewer residuals than this say nothing about their correlation.
FEWEST_CORRELATED = 10
# Noise of one point is never taken as smaller: code layout alone moves levels so far (log ratio).
LEAST_NOISE = 0.0015
# Without logarithms, values are in units of their usual size; beyond this they are hiccups in any case.
LARGEST = 1e6
# P-values and usual sizes end here: the logarithm of zero is nothing, and nothing can be divided by less.
SMALLEST = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True, eq=False)
class Trace:
    """A timeline prepared for many questions.

    `values` and `revisions` (n,) are those of the finite points: logarithms where all are positive, else in units of
    their usual size. `edges` are the places of the steps that stand so far; `noise` is the standard error of a
    trimmed mean times the root of the number of its points, for correlated points inflated.
    """

    timeline: TimelineValues
    values: Floats
    revisions: Ints
    edges: tuple[int, ...]
    noise: float

    def place(self, revision: int) -> int:
        """Index of the first point at or after the revision."""
        return int(np.searchsorted(self.revisions, revision))

    def span(self, at: int, clear: int) -> tuple[int, int]:
        """The points up to the neighbouring steps; edges within `clear` points of the place are the place itself."""
        low = max((edge for edge in self.edges if edge < at - clear), default=0)
        high = min((edge for edge in self.edges if edge > at + clear), default=len(self.values))
        return low, high


@dataclass(frozen=True)
class Shift:
    """Difference of the levels after and before a place, with its standard error."""

    effect: float
    error: float
    points: int  # on the shorter side; 0 where nothing was measured

    @property
    def z(self) -> float:
        return self.effect / self.error if self.error > 0 else 0.0

    @property
    def score(self) -> float:
        """-log10 of the two-sided p-value of z, were it normal."""
        return -math.log10(max(math.erfc(abs(self.z) / math.sqrt(2)), SMALLEST))


NOWHERE = Shift(effect=0.0, error=0.0, points=0)


def trace(timeline: TimelineValues, edges: Sequence[int] = ()) -> Trace:
    """Prepare a timeline; `edges` are the revisions of the steps that stand so far."""
    finite = np.isfinite(timeline.values)
    values, revisions = in_units(timeline.values[finite]), timeline.revisions[finite]
    cuts = tuple(sorted({int(np.searchsorted(revisions, edge)) for edge in edges}))
    return Trace(timeline, values, revisions, cuts, _noise(values, cuts))


def in_units(values: Floats) -> Floats:
    """Logarithms of positive values; others in units of their usual size, the median size of those not zero."""
    if values.size and float(values.min()) > 0:
        return np.log(values)
    sizes = np.abs(values[values != 0])
    usual = max(median(sizes), SMALLEST) if sizes.size else 1.0
    with np.errstate(over="ignore"):
        return np.clip(values / usual, -LARGEST, LARGEST)


def trimmed_mean(values: Sequence[float]) -> float:
    """Mean of the middle half; the median of fewer than four values. Not empty."""
    ordered = sorted(values)
    cut = int(len(ordered) * TRIM) if len(ordered) >= FEWEST_TRIMMED else (len(ordered) - 1) // 2
    middle = ordered[cut : len(ordered) - cut]
    return math.fsum(middle) / len(middle)


# A step within so many points of a place is taken for the one that is asked about.
CLEAR = 4


def shift_at(traced: Trace, revision: int, *, clear: int = CLEAR) -> Shift:
    """The shift at a revision, from up to REACH points a side but not beyond the timeline's other steps."""
    at = traced.place(revision)
    low, high = traced.span(at, clear)
    before = traced.values[max(low, at - REACH) : at].tolist()
    after = traced.values[at : min(high, at + REACH)].tolist()
    if not before or not after:
        return NOWHERE
    effect = trimmed_mean(after) - trimmed_mean(before)
    error = traced.noise * math.sqrt(1 / len(before) + 1 / len(after))
    return Shift(effect=effect, error=error, points=min(len(before), len(after)))


def _noise(values: Floats, cuts: Sequence[int]) -> float:
    """Standard error of the trimmed mean of one point, from all residuals about the levels between the cuts.

    It is the winsorised deviation over 1 - 2 TRIM (Yuen, Biometrika 61, 1974).
    """
    parts = [part for part in np.split(values, cuts) if part.size > 1]
    if not parts:
        return LEAST_NOISE
    residuals = np.concatenate([part - np.median(part) for part in parts])
    low, high = np.quantile(residuals, [TRIM, 1 - TRIM])
    winsorised = np.clip(residuals, low, high)
    spread = float(np.std(winsorised)) / (1 - 2 * TRIM)
    return max(spread * math.sqrt(_inflation(winsorised)), LEAST_NOISE)


def _inflation(residuals: Floats) -> float:
    """(1 + r) / (1 - r): by how much correlated points inflate the variance of their mean.

    Bartlett, J. R. Statist. Soc. Suppl. 8, 1946. r is taken back by one standard error.
    """
    total = float(residuals @ residuals)
    if total <= 0 or len(residuals) < FEWEST_CORRELATED:
        return 1.0
    r = float(residuals[1:] @ residuals[:-1]) / total - 1 / math.sqrt(len(residuals))
    r = min(max(r, 0.0), HIGHEST_CORRELATION)
    return (1 + r) / (1 - r)

"""What change points are looked for in: one value per measured revision, and its noise."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TimelineValues:
    """One value per measured revision, in the order of the revisions.

    `values` (n,) are in the metric's unit; a value that is not finite is a missing one and is left out, indices still
    refer to the given values. `revisions` (n,) are strictly increasing positions in first-parent history, gaps
    allowed. The names of machine and benchmark, and the direction, are empty when unknown. Raises ValueError naming the
    timeline.
    """

    name: str
    values: Floats
    revisions: Ints
    machine: str = ""
    benchmark: str = ""
    better: Literal["lower", "higher", ""] = ""

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "values", np.asarray(self.values, dtype=np.float64))
            object.__setattr__(self, "revisions", _whole(self.revisions))
        except (ValueError, TypeError, OverflowError) as error:
            raise ValueError(f"timeline {self.name}: {error}") from error
        if self.values.ndim != 1 or self.revisions.ndim != 1:
            raise ValueError(f"timeline {self.name}: values and revisions must be flat lists")
        if len(self.values) != len(self.revisions):
            raise ValueError(f"timeline {self.name}: {len(self.values)} values for {len(self.revisions)} revisions")
        if len(self.revisions) > 1 and bool(np.any(self.revisions[1:] <= self.revisions[:-1])):
            raise ValueError(f"timeline {self.name}: revisions are not strictly increasing")
        if self.better not in ("lower", "higher", ""):
            raise ValueError(f"timeline {self.name}: better is {self.better!r}, neither lower nor higher")

    def until(self, count: int) -> "TimelineValues":
        """The first `count` points, as they stood then."""
        return replace(self, values=self.values[:count], revisions=self.revisions[:count])


def _whole(revisions: npt.ArrayLike) -> Ints:
    given = np.asarray(revisions)
    if given.size and given.dtype.kind not in "iu":
        raise ValueError(f"revisions must be whole numbers, not {given.dtype}")
    whole = given.astype(np.int64)
    if bool(np.any(whole != given)):
        raise ValueError("revisions must be whole numbers of 64 bits")
    return whole


# Median absolute deviation of a normal distribution, inverted.
MAD_TO_DEVIATION = 1.4826
# Rounding to a grid adds at least the deviation of a uniform distribution one step wide.
GRID_DEVIATION = 1 / math.sqrt(12)
# A timeline has a grid where at least this share of its values has appeared before.
REPEATED_SHARE = 0.3
# Relative noise is never taken below this: a change that matters is a hundred times as large, and counters that never
# vary would make every other difference certain.
LEAST_NOISE = 1e-4
# A correlation of runs beyond this is a course, not noise; the inflation would leave nothing to be found.
MOST_CORRELATED = 0.6
# Fewer pairs of neighbours say nothing about correlation.
FEWEST_PAIRS = 8


def median(values: Floats) -> float:
    """numpy.median without its overhead, for values that are finite and not empty."""
    ordered = np.sort(values)
    half = len(ordered) // 2
    return float(ordered[half]) if len(ordered) % 2 else float(ordered[half - 1] / 2 + ordered[half] / 2)


def mean(values: Floats) -> float:
    """numpy.mean without its overhead, for values that are not empty."""
    return float(np.add.reduce(values)) / len(values)


def within(values: Floats, low: float, high: float) -> Floats:
    """numpy.clip without its overhead."""
    return np.minimum(np.maximum(values, low), high)


def value_grid(values: Floats) -> float:
    """The step between neighbouring values where they are coarse, 0 where they are not."""
    levels = np.unique(values)
    if len(levels) == 1 or len(levels) > (1 - REPEATED_SHARE) * len(values):
        return 0.0
    return median(np.diff(levels))


def difference_noise(values: Floats) -> float:
    """Standard deviation of one point from the first differences (von Neumann, Ann. Math. Stat. 12, 1941, made robust).

    Where most neighbours are equal the grid of the values stands in. `values` are relative (logarithms, or in units of
    their usual size), at least one; the result is never below LEAST_NOISE.
    """
    if len(values) == 1:
        return LEAST_NOISE
    noise = MAD_TO_DEVIATION * median(np.abs(np.diff(values))) / math.sqrt(2)
    return max(noise, GRID_DEVIATION * value_grid(values), LEAST_NOISE)


def run_correlation(residuals: Floats) -> float:
    """Correlation of neighbouring runs beyond what chance shows; from signs, which hiccups cannot dominate.

    sin(pi/2 * mean product of signs) is the quadrant correlation (Blomqvist, Ann. Math. Stat. 21, 1950). It is taken
    back by one standard error, so that short timelines of independent runs do not pay for it.
    """
    signs = np.sign(residuals)
    products = signs[1:] * signs[:-1]
    products = products[products != 0]
    if len(products) < FEWEST_PAIRS:
        return 0.0
    agreement = mean(products) - 1 / math.sqrt(len(products))
    return min(max(math.sin(math.pi / 2 * agreement), 0.0), MOST_CORRELATED)


# Stretches of about so many points show a slope; fewer than the second figure show none.
TREND_POINTS, FEWEST_TREND_POINTS = 50, 8
# A value further than so many deviations from the median of its stretch is a hiccup.
TREND_BOUND = 2.5
# Median of the square of a standard normal value.
MEDIAN_SQUARE = 0.455


def local_trend(values: Floats, cuts: Sequence[int], inflation: float) -> float:
    """By how much the level moves from one point to the next between the cuts: the usual slope, per point, at least 0.

    It is the root of the median squared slope of stretches, less what their scatter alone gives least squares slopes
    (12 variance / n^3 on n points). A median, since a stretch may hold a step that no cut marks. `inflation` is the
    variance ratio of correlated runs.
    """
    stretches = [
        stretch
        for part in np.split(values, cuts)
        for stretch in np.array_split(part, max(1, round(len(part) / TREND_POINTS)))
        if len(stretch) >= FEWEST_TREND_POINTS
    ]
    if not stretches:
        return 0.0
    slopes = [_squared_slope(one) for one in stretches]
    excess = [square - MEDIAN_SQUARE * inflation * by_chance for square, by_chance in slopes]
    return math.sqrt(max(median(np.array(excess)), 0.0))


def _squared_slope(values: Floats) -> tuple[float, float]:
    """Of the least squares line, and the variance of the slope by the scatter about it."""
    middle = median(values)
    bound = TREND_BOUND * MAD_TO_DEVIATION * median(np.abs(values - middle))
    drawn = within(values, middle - bound, middle + bound)
    time = np.arange(len(values)) - (len(values) - 1) / 2
    squares = float(time @ time)
    square = (float(time @ drawn) / squares) ** 2
    rest = drawn - mean(drawn)
    return square, max(float(rest @ rest) - square * squares, 0.0) / (len(values) - 2) / squares

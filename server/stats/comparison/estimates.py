"""From the values of boots to the figures of cells, as arrays over cells of one shape. A boot gives one datum: it is
the unit of statistics.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from server.stats.cells import FEWEST_BOOTS, Arm, Cell, Flag, Floats, Shape, Values
from server.stats.comparison import averages, mixtures
from server.stats.comparison.structures import Batch, folded
from server.stats.functions import special


@dataclass(frozen=True)
class Side:
    """One arm made ready: the values of its boots, or the problem that forbids it."""

    arm: Arm
    values: Floats
    problem: str = ""
    flag: Flag | None = None


def boot_value(values: Values) -> float:
    """Median on the log scale: the middle value, or the geometric mean of the middle two. Values are positive."""
    ordered = sorted(float(value) for value in values)
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    if low == high:
        return low
    # The product of the values themselves could overflow.
    return math.sqrt(low) * math.sqrt(high)


def read_side(name: str, boots: Sequence[Values]) -> Side:
    """`name` says in reasons whose boots these are. A boot without values gives no datum and does not count."""
    arrays = [array for array in (np.asarray(values, dtype=np.float64) for values in boots) if array.size]
    if not arrays:
        return _unusable(name, 0, "no values", Flag.TOO_FEW_BOOTS)
    values = np.concatenate(arrays)
    bad = int(np.count_nonzero(~np.isfinite(values)))
    if bad:
        return _unusable(name, len(arrays), f"{bad} of {values.size} values are no finite numbers", Flag.NOT_FINITE)
    bad = int(np.count_nonzero(values <= 0))
    if bad:
        return _unusable(name, len(arrays), f"{bad} of {values.size} values are zero or negative", Flag.NON_POSITIVE)
    data = np.array([boot_value(array) for array in arrays])
    arm = Arm(boots=len(data), mean=_mean(data), sd=_deviation(data))
    if len(data) < FEWEST_BOOTS:
        return Side(arm, data, f"{name} kernel: only 1 boot, {FEWEST_BOOTS} are needed", Flag.TOO_FEW_BOOTS)
    return Side(arm, data)


def _unusable(name: str, boots: int, problem: str, flag: Flag) -> Side:
    return Side(Arm(boots=boots), np.empty(0), f"{name} kernel: {problem}", flag)


def _scale(data: Floats) -> float:
    """A power of two near the largest value: dividing by it is exact and keeps sums and squares from overflowing."""
    return math.ldexp(0.5, int(np.frexp(data.max())[1]))


def _mean(data: Floats) -> float:
    scale = _scale(data)
    return float(np.mean(data / scale)) * scale


def _deviation(data: Floats) -> float | None:
    if len(data) < FEWEST_BOOTS:
        return None
    scale = _scale(data)
    # Measured from the first value, equal values have a deviation of exactly zero.
    return float(np.std((data - data[0]) / scale, ddof=1)) * scale


# A value further from its boot's median than so many median deviations is drawn in to there. For normal values a
# median deviation is 0.67 standard deviations, so this is 3.5 of them, and one value in 2000 is touched.
_REACH = 5.2
# If more than this share of the runs of an arm would be drawn in (and more than one), they are no accidents but a
# second mode, which belongs to the kernel. Then nothing is drawn in, in neither arm: both must be treated alike.
_ACCIDENTS = 0.1
# Values nearer to each other than this part of themselves are the same value, give or take the rounding of floats.
_SAME = 1e-12
# In a boot of fewer runs the median is no better than the mean.
_MEDIAN_RUNS = 3


@dataclass(frozen=True)
class Summaries:
    """M cells of one shape with B boots."""

    shape: Shape
    values: Floats  # (M, B): each boot's median, in the metric's unit
    means: Floats  # (M, B): each boot's mean on logs, its far values drawn in, less the cell's origin
    within: Floats  # (M, 2): sums of squares inside the boots, base and patched
    loose: Floats  # (M, 2): the same before far values were drawn in
    lowest: Floats  # (M, B): the least value of each boot
    highest: Floats  # (M, B)
    steps: Floats  # (M,): the smallest distance of two values where values repeat, in the metric's unit; 0 elsewhere


def summarise(values: Floats, shape: Shape) -> Summaries:
    """`values` (M, B, K) are positive, NaN where a boot has fewer than K runs."""
    runs = shape.runs
    ordered = np.sort(values, axis=2)
    logs = np.log(ordered)
    # Measured from one common value, equal constants differ by exactly zero.
    logs -= logs[:, :1, :1].copy()
    drawn = _drawn_in(logs, shape)
    means = _over_runs(drawn, shape) / runs
    # A boot of equal values has exactly their mean.
    lowest, highest = ordered[:, :, 0].copy(), _of_boots(ordered, runs - 1)
    means = np.where(lowest == highest, drawn[:, :, 0], means)
    within, loose = _inside(drawn, means, shape), _inside(logs, _over_runs(logs, shape) / runs, shape)
    return Summaries(shape, _middle(ordered, shape), means, within, loose, lowest, highest, _steps(ordered))


def _over_runs(values: Floats, shape: Shape) -> Floats:
    """Sums over the runs of each boot, (M, B)."""
    runs = shape.runs
    # The same sum where nothing is filled up, and much faster.
    return np.asarray(np.sum(values, axis=2) if (runs == values.shape[2]).all() else np.nansum(values, axis=2))


def _inside(logs: Floats, means: Floats, shape: Shape) -> Floats:
    """Sums of squares around the boots' means, (M, 2)."""
    squares = _over_runs((logs - means[:, :, None]) ** 2, shape)
    return np.stack([squares[:, arm].sum(axis=1) for arm in shape.arms], axis=1)


def _steps(values: Floats) -> Floats:
    """Values that repeat are rounded; their smallest distance tells the step when the metric does not name it."""
    ordered = np.sort(values.reshape(len(values), -1), axis=1)
    apart = np.diff(ordered, axis=1)
    # What fills up short boots stands last; comparisons with it are false.
    same, other = apart <= _SAME * ordered[:, :-1], apart > _SAME * ordered[:, :-1]
    least = np.min(apart, axis=1, initial=np.inf, where=other)
    return np.where(same.any(axis=1) & np.isfinite(least), least, 0.0)


def _of_boots(ordered: Floats, places: npt.NDArray[np.int64]) -> Floats:
    """One value of each boot. Laid out row by row, so that sums over boots do not depend on the other cells."""
    return np.ascontiguousarray(ordered[:, np.arange(len(places)), places])


def _middle(ordered: Floats, shape: Shape) -> Floats:
    """The median on the log scale, to the last bit where the middle values are equal."""
    low, high = _of_boots(ordered, (shape.runs - 1) // 2), _of_boots(ordered, shape.runs // 2)
    # The product of the values themselves could overflow.
    return np.where(low == high, low, np.sqrt(low) * np.sqrt(high))


def _drawn_in(logs: Floats, shape: Shape) -> Floats:
    """Values far from the median of their boot, by the spread of their arm, are set to the limit (Winsor)."""
    runs = shape.runs
    middle = (_of_boots(logs, (runs - 1) // 2) + _of_boots(logs, runs // 2)) / 2
    away = logs - middle[:, :, None]
    limits = np.full(middle.shape, np.inf)
    for arm in shape.arms:
        long = np.flatnonzero(runs[arm] >= _MEDIAN_RUNS) + arm.start
        if long.size:
            # The least of each boot is that of the median itself and is zero, or nearly.
            others = np.sort(np.abs(away[:, long]), axis=2)[:, :, 1:].reshape(len(logs), -1)
            others = np.sort(others, axis=1)
            known = int((runs[long] - 1).sum())
            spread = (others[:, (known - 1) // 2] + others[:, known // 2]) / 2
            limits[:, long] = _REACH * spread[:, None]
    far = np.abs(away) > limits[:, :, None]
    usual = np.ones(len(logs), dtype=bool)
    for arm in shape.arms:
        usual &= far[:, arm].sum(axis=(1, 2)) <= max(1.0, _ACCIDENTS * runs[arm].sum())
    drawn = middle[:, :, None] + np.clip(away, -limits[:, :, None], limits[:, :, None])
    return np.where(usual[:, None, None], drawn, logs)


# Means of boots agree better than this part of what their runs imply only by chance: with 3 boots once in 20 times.
_AGREEMENT = 0.1


def agreement(summaries: Summaries) -> Floats:
    """The least variance of a boot's mean of each arm, (M, 2), on logs: runs that vary leave no boot's mean certain.

    A part of the variance of runs over the harmonic mean of their numbers; zero where each boot has one run.
    """
    least = np.zeros_like(summaries.loose)
    for place, arm in enumerate(summaries.shape.arms):
        runs = summaries.shape.runs[arm]
        spare = int(runs.sum()) - len(runs)
        if spare:
            least[:, place] = _AGREEMENT * summaries.loose[:, place] / spare * np.mean(1 / runs)
    return least


# On logs, a larger step says no more than that the value is unknown.
_LARGEST_STEP = 700.0
# Where the step is only guessed it is at most this part of the smaller mean. Two constants tell nothing of the step but
# their own distance, which alone would make no distance significant; so twice the value is a change, 1.2 and 1.3 are
# not.
_LARGEST_GUESS = 0.2


def rounding_variance(mean: Floats, resolution: Floats) -> Floats:
    """The least variance of an arm's mean, on logs: that of its rounding, which does not shrink with more boots.

    A value is the difference of two readings, each rounded to the resolution: step^2 / 12 for each (GUM, JCGM
    100:2008, F.2.2.1), step^2 / 6 together. When nothing else varies every boot is rounded alike, so the boots' mean
    has this error too. It makes one step of difference never significant, whatever the number of boots. Without a
    known resolution the step is the grid of floating-point numbers.
    """
    with np.errstate(over="ignore"):
        step = np.maximum(resolution, np.spacing(mean)) / mean
    step = np.maximum(step, np.spacing(np.abs(np.log(mean))))
    return np.asarray(np.minimum(step, _LARGEST_STEP) ** 2 / 6)


def step_of(resolution: Floats, smallest: Floats, mean: Floats) -> Floats:
    """The step of the values, (M,): the declared resolution, or else the `smallest` distance between values, if known.

    `mean` is that of the smaller arm, in the same unit.
    """
    return np.where(resolution > 0, resolution, np.minimum(smallest, _LARGEST_GUESS * mean))


# From fewer boots two groups cannot be told from chance.
_FEWEST = 8
# Each group has at least so many boots: one alone is an outlier.
_SMALLEST_GROUP = 2
# Of the sum of squares of normal values the best cut leaves 1 - 2/pi inside the groups, of B boots somewhat more or
# less; less than this minus 0.92 / sqrt(B) in one cell of 200 (simulated for 8 to 32 boots).
_LEFT = 1 - 2 / math.pi
_CHANCE = 0.92


def bimodal(means: Floats) -> np.ndarray:
    """Which of M cells have boots in two groups; `means` (M, B) on logs, with the difference of the arms taken out.

    The best cut into two groups by sums of squares (Fisher, J. Amer. Statist. Assoc. 53, 1958).
    """
    boots = means.shape[1]
    if boots < _FEWEST:
        return np.zeros(len(means), dtype=bool)
    ordered = np.sort(means - means.mean(axis=1, keepdims=True), axis=1)
    total = np.sum(ordered**2, axis=1)
    size = np.arange(_SMALLEST_GROUP, boots - _SMALLEST_GROUP + 1)
    sums = np.cumsum(ordered, axis=1)[:, size - 1]
    # The groups' sums are opposite, as all values sum to zero.
    between = np.max(sums**2 * (1 / size + 1 / (boots - size)), axis=1)
    return np.asarray((total > 0) & (total - between < (_LEFT - _CHANCE / math.sqrt(boots)) * total))


POWER = 0.80
# A peculiarity is named when it is likelier than not. For variances of their own that is too often: above this weight
# and from 4 boots of each arm they are named in 1 to 4 of 100 cells with equal ones (simulated, 4 to 16 boots).
_LIKELY, _LIKELY_UNEQUAL = 0.5, 0.8
_UNEQUAL_BOOTS = 4


@dataclass(frozen=True)
class Estimates:
    """M cells; differences and distances are on logs, patched less base."""

    difference: Floats
    low: Floats
    high: Floats
    p_value: Floats
    visible: Floats  # the distance beyond a limit that is seen with 80 % power
    means: Floats  # (M, 2): of the boots' values in the metric's unit
    deviations: Floats  # (M, 2)
    zero_spread: np.ndarray
    unequal: np.ndarray
    trend: np.ndarray
    outlying: np.ndarray
    bimodal: np.ndarray
    exact: np.ndarray  # judged by the rule for what does not vary


def estimate(cells: Sequence[Cell], summaries: Summaries, alpha: float) -> Estimates:
    means, deviations = _arms(summaries)
    constant = _constant(summaries)
    both, either = constant[:, 0] & constant[:, 1], constant[:, 0] | constant[:, 1]
    step = step_of(np.array([cell.resolution for cell in cells]), summaries.steps, means.min(axis=1))
    grid = np.stack([rounding_variance(means[:, arm], step) for arm in (0, 1)], axis=1)
    batch = Batch(summaries.shape, summaries.means, summaries.within, both, grid, agreement(summaries))
    averaged = averages.average(folded(batch))
    mixture = averaged.difference
    difference = mixture.mean()
    low, high = mixtures.ends(mixture, alpha / 2)
    low, high = np.minimum(difference, low), np.maximum(difference, high)
    freedom = np.sum(mixture.weight * mixture.freedom, axis=1)
    patched = summaries.shape.arms[1]
    levelled = summaries.means.copy()
    levelled[:, patched] -= difference[:, None]
    return Estimates(
        difference=difference,
        low=low,
        high=high,
        p_value=mixtures.two_sided(mixture),
        visible=(high - low) / 2 * further(freedom, alpha),
        means=means,
        deviations=deviations,
        zero_spread=either,
        unequal=(averaged.separate > _LIKELY_UNEQUAL) & (min(summaries.shape.boots) >= _UNEQUAL_BOOTS),
        trend=averaged.trend > _LIKELY,
        outlying=averaged.outlier > _LIKELY,
        exact=np.zeros(len(cells), dtype=bool),
        bimodal=(bimodal(levelled) | (averaged.levels > _LIKELY)) & ~either,
    )


def _constant(summaries: Summaries) -> npt.NDArray[np.bool_]:
    """Which arms, (M, 2), have one value in all runs of all boots."""
    lowest, highest, arms = summaries.lowest, summaries.highest, summaries.shape.arms
    ranges = np.stack([highest[:, arm].max(axis=1) - lowest[:, arm].min(axis=1) for arm in arms], axis=1)
    return np.asarray(ranges == 0)


def further(freedom: Floats, alpha: float) -> Floats:
    """How many half intervals away a change is found with 80 % power: a quantile of the noncentral t distribution.

    By its normal approximation (Johnson and Welch, Biometrika 31, 1940), which is 2 % off at two degrees of freedom.
    """
    limit = special.stdtrit(freedom, 1 - alpha / 2)
    score = special.ndtri(POWER)
    return np.asarray(1 - 1 / (4 * freedom) + score * np.sqrt(1 / limit**2 + 1 / (2 * freedom)))


def _arms(summaries: Summaries) -> tuple[Floats, Floats]:
    """Mean and standard deviation of the boots' values of each arm, (M, 2)."""
    means, deviations = [], []
    for arm in summaries.shape.arms:
        values = summaries.values[:, arm]
        # Dividing by a power of two near the largest is exact and keeps sums and squares from overflowing.
        scale = np.ldexp(0.5, np.frexp(values.max(axis=1))[1])[:, None]
        scaled = values / scale
        # Measured from the first value, equal values have their own mean and a deviation of exactly zero.
        apart = scaled - scaled[:, :1]
        means.append((scaled[:, 0] + apart.mean(axis=1)) * scale[:, 0])
        deviations.append(apart.std(axis=1, ddof=FEWEST_BOOTS - 1) * scale[:, 0])
    return np.stack(means, axis=1), np.stack(deviations, axis=1)


# The p-value of what is certain: not zero, so that its logarithm stays finite.
CERTAIN = 1e-12
# The smallest part of a value that a bound is taken down to, and the smallest number of all.
_LEAST_PART, _LEAST = 1e-300, 5e-324
# Differences of whole steps are told from one another to this part of a step: the rest is rounding.
_SLACK = 1e-6


def sharpened(cells: Sequence[Cell], summaries: Summaries, estimates: Estimates) -> Estimates:
    """The estimates, with those of exact cells that did not vary put in the place of the statistical ones.

    Such a value is known to one step of its resolution, so the interval is that of all ratios of values up to one step
    away: arms more than two steps apart differ for certain, others may be equal. An exact cell whose boots do vary
    keeps its statistical estimate.
    """
    wanted = np.array([cell.exact for cell in cells])
    if not wanted.any():
        return estimates
    step = np.maximum([cell.resolution for cell in cells], 4 * np.spacing(estimates.means.max(axis=1)))
    exact = wanted & _still(summaries, step)
    base, patched = estimates.means[:, 0], estimates.means[:, 1]
    certain = np.abs(patched - base) > (2 + _SLACK) * step
    low = _log_below(patched, step) - _log_above(base, step)
    high = _log_above(patched, step) - _log_below(base, step)
    # At two steps the ends are zero, give or take rounding.
    low, high = np.where(certain, low, np.minimum(low, 0)), np.where(certain, high, np.maximum(high, 0))
    difference = np.log(patched) - np.log(base)
    return replace(
        estimates,
        difference=np.where(exact, difference, estimates.difference),
        low=np.where(exact, low, estimates.low),
        high=np.where(exact, high, estimates.high),
        p_value=np.where(exact, np.where(certain, CERTAIN, 1.0), estimates.p_value),
        visible=np.where(exact, (high - low) / 2, estimates.visible),
        exact=exact,
    )


def _log_below(value: Floats, step: Floats) -> Floats:
    return np.asarray(np.log(np.maximum(value - step, np.maximum(value * _LEAST_PART, _LEAST))))


def _log_above(value: Floats, step: Floats) -> Floats:
    """The sum of the numbers themselves could overflow."""
    return np.asarray(np.logaddexp(np.log(value), np.log(step)))


def _still(summaries: Summaries, step: Floats) -> np.ndarray:
    """Whether the values of each arm lie within one step of each other."""
    ranges = [
        summaries.highest[:, arm].max(axis=1) - summaries.lowest[:, arm].min(axis=1) for arm in summaries.shape.arms
    ]
    return np.asarray(np.max(ranges, axis=0) <= step * (1 + 1e-9))

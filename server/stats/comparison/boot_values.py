"""From the values of a boot to its one datum: the boot is the unit of statistics."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from server.stats.cells import FEWEST_BOOTS, Arm, Flag, Floats, Shape, Values


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
    means = np.nansum(drawn, axis=2) / runs
    # A boot of equal values has exactly their mean.
    lowest, highest = ordered[:, :, 0].copy(), _of_boots(ordered, runs - 1)
    means = np.where(lowest == highest, drawn[:, :, 0], means)
    within, loose = _inside(drawn, means, shape), _inside(logs, np.nansum(logs, axis=2) / runs, shape)
    return Summaries(shape, _middle(ordered, shape), means, within, loose, lowest, highest, _steps(ordered))


def _inside(logs: Floats, means: Floats, shape: Shape) -> Floats:
    """Sums of squares around the boots' means, (M, 2)."""
    squares = np.nansum((logs - means[:, :, None]) ** 2, axis=2)
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

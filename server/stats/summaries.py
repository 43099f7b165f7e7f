"""From the values of cells of one shape to their boots: one number for display, one mean for the estimate."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from server.stats.shapes import Floats, Shape

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

"""From the values of cells of one shape to their boots: one number for display, one mean for the estimate."""

from dataclasses import dataclass

import numpy as np

from server.stats.shapes import Floats, Shape

# A value further from its boot's median than so many median deviations is drawn in to there. For normal values a
# median deviation is 0.67 standard deviations, so this is 3.5 of them, and one value in 2000 is touched.
_REACH = 5.2
# In a boot of fewer runs the median is no better than the mean.
_MEDIAN_RUNS = 3


@dataclass(frozen=True)
class Summaries:
    """M cells of one shape with B boots."""

    shape: Shape
    values: Floats  # (M, B): each boot's median, in the metric's unit
    means: Floats  # (M, B): each boot's mean on logs, its far values drawn in, less the cell's origin
    within: Floats  # (M, 2): sums of squares inside the boots, base and patched
    lowest: Floats  # (M, B): the least value of each boot
    highest: Floats  # (M, B)


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
    lowest, highest = ordered[:, :, 0], ordered[:, np.arange(len(runs)), runs - 1]
    means = np.where(lowest == highest, drawn[:, :, 0], means)
    squares = np.nansum((drawn - means[:, :, None]) ** 2, axis=2)
    within = np.stack([squares[:, arm].sum(axis=1) for arm in shape.arms], axis=1)
    return Summaries(shape, _middle(ordered, shape), means, within, lowest, highest)


def _middle(ordered: Floats, shape: Shape) -> Floats:
    """The median on the log scale, to the last bit where the middle values are equal."""
    boots, runs = np.arange(len(shape.runs)), shape.runs
    low, high = ordered[:, boots, (runs - 1) // 2], ordered[:, boots, runs // 2]
    # The product of the values themselves could overflow.
    return np.where(low == high, low, np.sqrt(low) * np.sqrt(high))


def _drawn_in(logs: Floats, shape: Shape) -> Floats:
    """Values far from the median of their boot, by the spread of their arm, are set to the limit (Winsor)."""
    boots, runs = np.arange(len(shape.runs)), shape.runs
    middle = (logs[:, boots, (runs - 1) // 2] + logs[:, boots, runs // 2]) / 2
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
    return np.asarray(middle[:, :, None] + np.clip(away, -limits[:, :, None], limits[:, :, None]))

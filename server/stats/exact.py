"""Metrics that do not vary, such as counted instructions: what differs by more than their resolution is certain."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from server.stats.cells import Cell
from server.stats.estimates import Estimates
from server.stats.shapes import Floats
from server.stats.summaries import Summaries

# The p-value of what is certain: not zero, so that its logarithm stays finite.
CERTAIN = 1e-12
# The smallest part of a value that a bound is taken down to.
_LEAST_PART = 1e-300


def sharpened(cells: Sequence[Cell], summaries: Summaries, estimates: Estimates) -> Estimates:
    """The estimates, with those of exact cells that did not vary put in the place of the statistical ones.

    Such a value is known to one step of its resolution, so the interval runs from one step below the difference to one
    step above it. An exact cell whose boots do vary keeps its statistical estimate.
    """
    wanted = np.array([cell.exact for cell in cells])
    if not wanted.any():
        return estimates
    step = np.maximum([cell.resolution for cell in cells], 4 * np.spacing(estimates.means.max(axis=1)))
    exact = wanted & _still(summaries, step)
    base, patched = estimates.means[:, 0], estimates.means[:, 1]
    low = np.log(np.maximum(patched - step, patched * _LEAST_PART)) - np.log(base + step)
    high = np.log(patched + step) - np.log(np.maximum(base - step, base * _LEAST_PART))
    difference = np.log(patched) - np.log(base)
    certain = np.where(np.abs(patched - base) > step, CERTAIN, 1.0)
    return replace(
        estimates,
        difference=np.where(exact, difference, estimates.difference),
        low=np.where(exact, low, estimates.low),
        high=np.where(exact, high, estimates.high),
        p_value=np.where(exact, certain, estimates.p_value),
        visible=np.where(exact, (high - low) / 2, estimates.visible),
        exact=exact,
    )


def _still(summaries: Summaries, step: Floats) -> np.ndarray:
    """Whether the values of each arm lie within one step of each other."""
    ranges = [
        summaries.highest[:, arm].max(axis=1) - summaries.lowest[:, arm].min(axis=1) for arm in summaries.shape.arms
    ]
    return np.asarray(np.max(ranges, axis=0) <= step * (1 + 1e-9))

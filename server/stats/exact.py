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

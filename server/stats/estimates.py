"""The figures of cells of one shape, each as one array over the cells."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from server.stats import averaging, mixtures, modes
from server.stats.cells import Cell
from server.stats.folding import folded
from server.stats.rounding import rounding_variance, step_of
from server.stats.shapes import FEWEST_BOOTS, Floats
from server.stats.summaries import Summaries
from server.stats.terms import Batch
from server.stats.variances import agreement

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
    averaged = averaging.average(folded(batch))
    mixture = averaged.difference
    difference = mixture.mean()
    low = np.minimum(difference, mixtures.lower_quantile(mixture, alpha / 2))
    high = np.maximum(difference, -mixtures.lower_quantile(mixture.mirrored(), alpha / 2))
    freedom = np.sum(mixture.weight * mixture.freedom, axis=1)
    patched = summaries.shape.arms[1]
    levelled = summaries.means.copy()
    levelled[:, patched] -= difference[:, None]
    return Estimates(
        difference=difference,
        low=low,
        high=high,
        p_value=mixtures.two_sided(mixture),
        visible=(high - low) / 2 * _further(freedom, alpha),
        means=means,
        deviations=deviations,
        zero_spread=either,
        unequal=(averaged.separate > _LIKELY_UNEQUAL) & (min(summaries.shape.boots) >= _UNEQUAL_BOOTS),
        trend=averaged.trend > _LIKELY,
        outlying=averaged.outlier > _LIKELY,
        exact=np.zeros(len(cells), dtype=bool),
        bimodal=(modes.bimodal(levelled) | (averaged.levels > _LIKELY)) & ~either,
    )


def _constant(summaries: Summaries) -> npt.NDArray[np.bool_]:
    """Which arms, (M, 2), have one value in all runs of all boots."""
    lowest, highest, arms = summaries.lowest, summaries.highest, summaries.shape.arms
    ranges = np.stack([highest[:, arm].max(axis=1) - lowest[:, arm].min(axis=1) for arm in arms], axis=1)
    return np.asarray(ranges == 0)


def _further(freedom: Floats, alpha: float) -> Floats:
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

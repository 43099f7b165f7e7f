"""What each error structure says of the difference of two arms: a t distribution and how well it fits."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from server.stats.shapes import Floats, Shape
from server.stats.structures import Structures, structures_of

# Prior weight of arms with variances of their own, against equal ones. With as many boots in both arms a common
# variance does little harm where it is wrong; with unequal numbers it does, above all where the arm of fewer boots is
# the noisier one.
_SEPARATE_PRIOR, _SEPARATE_PRIOR_OF_UNEQUAL = 0.04, 0.08


@dataclass(frozen=True)
class Batch:
    """M cells of one shape as sums: boots' means on logs and the squares inside boots."""

    shape: Shape
    means: Floats  # (M, B)
    within: Floats  # (M, 2): sums of squares inside the boots of base and of patched
    constant: npt.NDArray[np.bool_]  # (M,): no value differs from another of its arm
    grid: Floats  # (M, 2): variance that rounding alone gives one boot of each arm
    least: Floats  # (M, 2): variance below which the means of an arm's boots agree by chance only

    def floor(self, boots_only: Floats) -> Floats:
        """The least variance of a boot's mean in each of K structures, both arms together, (M, K)."""
        spare = np.array([self.shape.runs[arm].sum() - len(self.shape.runs[arm]) for arm in self.shape.arms])
        share = spare / max(1, spare.sum())
        pooled = self.least[:, 0] * share[0] + self.least[:, 1] * share[1]
        return np.asarray(np.maximum(self.grid.max(axis=1, keepdims=True), boots_only * pooled[:, None]))


@dataclass(frozen=True)
class Terms:
    """One row of t distributions for each cell, with the logarithms of their weights; all (M, T)."""

    log_weight: Floats
    centre: Floats
    variance: Floats
    freedom: Floats


@dataclass(frozen=True)
class Sums:
    """What the likelihoods are made of."""

    structures: Structures
    difference: Floats  # (M, K)
    pull: Floats  # (M, K, B): the residuals weighted by the structure
    squares: Floats  # (M, K, 2): sum of squares of each arm
    boots_only: Floats  # (K,): 1 where only boots' means count
    log_prior: Floats  # (M, K)
    apart: Floats  # (M, 2): log likelihood of the squares inside boots where they stand apart


def sums_of(batch: Batch) -> Sums:
    shape, structures = batch.shape, structures_of(batch.shape)
    base, patched = shape.arms
    arm_means = np.stack([batch.means[:, base].mean(axis=1), batch.means[:, patched].mean(axis=1)], axis=1)
    errors = batch.means.copy()
    errors[:, base] -= arm_means[:, :1]
    errors[:, patched] -= arm_means[:, 1:]
    count, boots = structures.contrast.shape
    pull = _row_by_row(errors, structures.residual.transpose(1, 0, 2).reshape(boots, count * boots))
    pull = pull.reshape(-1, count, boots)
    products = pull * errors[:, None, :]
    squares = np.stack([products[:, :, base].sum(axis=2), products[:, :, patched].sum(axis=2)], axis=2)
    squares = squares + structures.within_factor[None, :, None] * batch.within[:, None, :]
    difference = (arm_means[:, 1] - arm_means[:, 0])[:, None] + _row_by_row(errors, structures.contrast.T)
    spare = np.array([shape.runs[arm].sum() - len(shape.runs[arm]) for arm in shape.arms], dtype=np.float64)
    boots_only = (structures.within_factor == 0).astype(np.float64)
    # Runs that differ by no more than rounding tell nothing of the spread, so only boots' means may count.
    rigid = batch.within.sum(axis=1) <= spare.sum() * batch.grid.max(axis=1)
    log_prior = np.where(rigid[:, None] & (boots_only == 0), -np.inf, structures.log_prior)
    return Sums(structures, difference, pull, squares, boots_only, log_prior, _apart(batch, spare))


def _row_by_row(rows: Floats, matrix: Floats) -> Floats:
    """The matrix product, each row multiplied alone: rounding of a cell must not depend on the others in the batch."""
    return np.asarray((rows[:, None, :] @ matrix)[:, 0, :])


def log_power(squares: Floats, freedom: Floats) -> Floats:
    """Likelihood of a sum of squares when its variance is unknown (prior 1/variance), up to a common constant."""
    return np.asarray(special.gammaln(freedom / 2) - freedom / 2 * np.log(squares))


def _apart(batch: Batch, spare: Floats) -> Floats:
    squares = np.maximum(batch.within, spare * batch.grid)
    known = spare > 0
    power = np.zeros_like(squares)
    power[:, known] = log_power(squares[:, known], spare[known])
    return power


def equal(batch: Batch, sums: Sums) -> Terms:
    """One variance for both arms."""
    structures = sums.structures
    squares = np.maximum(sums.squares.sum(axis=2), structures.exponent * batch.floor(sums.boots_only))
    log_weight = log_power(squares, structures.exponent) - structures.log_determinant / 2 + sums.log_prior
    log_weight = log_weight + sums.boots_only * apart_together(batch)[:, None]
    variance = squares / structures.freedom * structures.unit_variance
    return Terms(log_weight, sums.difference, variance, np.broadcast_to(structures.freedom, squares.shape))


def apart_together(batch: Batch) -> Floats:
    spare = float(batch.shape.runs.sum() - len(batch.shape.runs))
    if spare == 0:
        return np.zeros(len(batch.means))
    return log_power(np.maximum(batch.within.sum(axis=1), spare * batch.grid.max(axis=1)), np.asarray(spare))


def plain_structures(sums: Sums) -> npt.NDArray[np.int64]:
    return np.flatnonzero(~sums.structures.trend)


def separate(batch: Batch, sums: Sums) -> Terms:
    """A variance for each arm, without a trend; Welch's degrees of freedom (Biometrika 34, 1947)."""
    structures, plain = sums.structures, plain_structures(sums)
    total = np.zeros((len(batch.means), len(plain)))
    parts, freedoms = [], []
    for arm, where in enumerate(batch.shape.arms):
        values = int(batch.shape.runs[where].sum())
        boots = len(batch.shape.runs[where])
        freedom = np.where(sums.boots_only[plain] == 1, boots, values) - 1.0
        floor = np.maximum(batch.grid[:, [arm]], sums.boots_only[plain] * batch.least[:, [arm]])
        squares = np.maximum(sums.squares[:, plain, arm], freedom * floor)
        total += log_power(squares, freedom) + sums.boots_only[plain] * sums.apart[:, [arm]]
        precision = (1 / structures.boot_variance[plain][:, where]).sum(axis=1)
        parts.append(squares / freedom / precision)
        freedoms.append(freedom)
    variance = parts[0] + parts[1]
    share = parts[0] / variance
    freedom = 1 / (share**2 / freedoms[0] + (1 - share) ** 2 / freedoms[1])
    base, patched = batch.shape.boots
    prior = _SEPARATE_PRIOR if base == patched else _SEPARATE_PRIOR_OF_UNEQUAL
    log_weight = total - structures.log_determinant[plain] / 2 + sums.log_prior[:, plain] + np.log(prior)
    return Terms(log_weight, sums.difference[:, plain], variance, freedom)

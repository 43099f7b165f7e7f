"""How the errors of a cell may hang together, and what each structure says of the difference of two arms."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from server.stats.cells import Floats, Shape
from server.stats.functions import special

# Correlations of two runs of one boot that are tried. Above the last of them the boot effect is so large that the
# runs say nothing more: that is the structure in which only the boots' means count.
CORRELATIONS = (0.0, 0.3, 0.6, 0.85, 0.95)
# Prior weight of "only the boots' means count" against one of the correlations: it stands for all above the last.
_BOOTS_ONLY = 0.6
# A machine that drifts does so by steps from boot to boot: their variances tried, in units of one value's variance.
_WALKS = (0.1, 0.4)
_WALK_CORRELATIONS = (0.0, 0.6)
# Prior weight of each structure with a trend, and the range of straight lines: how many standard deviations of a
# value the session may rise from its first boot to its last.
_TREND = 0.1
_LINE_RANGE = 10.0
# From fewer boots a trend cannot be told from chance.
_TREND_BOOTS = 6


@dataclass(frozen=True)
class Structures:
    """K structures for B boots, ready for generalised least squares (Aitken, Proc. R. Soc. Edinburgh 55, 1935).

    With e the boots' means less the plain mean of their arm: the difference of the arms is the plain one plus
    `contrast @ e`, the sum of squares is `e @ residual @ e + within_factor * (sum of squares inside boots)`, the
    variance of the difference is `unit_variance` times the residual variance.
    """

    contrast: Floats  # (K, B)
    residual: Floats  # (K, B, B)
    unit_variance: Floats  # (K,)
    boot_variance: Floats  # (K, B): the variance of a boot's mean, in units of the residual variance
    log_determinant: Floats  # (K,), of the covariance of the contrasts that are free of the means
    freedom: Floats  # (K,), of the residual variance
    exponent: Floats  # (K,), half of it is the power of the sum of squares in the likelihood
    within_factor: Floats  # (K,), 0 where only boots' means count
    log_prior: Floats  # (K,)
    trend: npt.NDArray[np.bool_]  # (K,)


@dataclass(frozen=True)
class _Kind:
    """One structure: a correlation inside boots (None: only boots' means count) and a trend over the session."""

    correlation: float | None
    walk: float = 0.0
    line: bool = False

    @property
    def trend(self) -> bool:
        return self.line or self.walk > 0

    @property
    def log_prior(self) -> float:
        weight = _BOOTS_ONLY if self.correlation is None else 1.0
        if self.trend:
            weight *= _TREND
        if self.line:
            # The integral over a flat prior for the rise, whose range is given in standard deviations.
            weight *= math.sqrt(2 * math.pi) / _LINE_RANGE
        return math.log(weight)


@lru_cache(maxsize=256)
def structures_of(shape: Shape) -> Structures:
    fitted = [_fitted(kind, shape) for kind in _kinds(shape)]
    return Structures(**{name: np.stack([fit[name] for fit in fitted]) for name in fitted[0]})


def _kinds(shape: Shape) -> Iterator[_Kind]:
    trends = shape.order is not None and sum(shape.boots) >= _TREND_BOOTS
    single = int(shape.runs.max()) == 1
    for correlation in (None,) if single else (*CORRELATIONS, None):
        yield _Kind(correlation)
    for correlation in (None,) if single else (*_WALK_CORRELATIONS, None):
        if trends:
            yield from (_Kind(correlation, walk=walk) for walk in _WALKS)
            yield _Kind(correlation, line=True)


def _fitted(kind: _Kind, shape: Shape) -> dict[str, npt.NDArray[Any]]:
    """The fields of `Structures` for one kind, each without the first axis."""
    runs = shape.runs
    boots, spare = len(runs), int(runs.sum()) - len(runs)
    own, factor = np.ones(boots), 0.0
    if kind.correlation is not None:
        own, factor = kind.correlation + (1 - kind.correlation) / runs, 1 / (1 - kind.correlation)
    design, order = _design(kind, shape)
    covariance = np.diag(own) + kind.walk * np.minimum.outer(order, order)
    inverse = np.linalg.inv(covariance)
    precision = design.T @ inverse @ design
    hat = np.linalg.inv(precision)
    weights = hat @ design.T @ inverse
    log_determinant = float(np.linalg.slogdet(covariance)[1] + np.linalg.slogdet(precision)[1])
    exponent = boots - 2
    if factor:
        exponent, log_determinant = exponent + spare, log_determinant - spare * math.log(factor)
    fields = {
        "contrast": weights[1] - weights[0],
        "residual": inverse - inverse @ design @ weights,
        "unit_variance": hat[0, 0] + hat[1, 1] - 2 * hat[0, 1],
        "boot_variance": own,
        "log_determinant": log_determinant,
        "freedom": exponent - (design.shape[1] - 2),
        "exponent": exponent,
        "within_factor": factor,
        "log_prior": kind.log_prior,
    }
    arrays: dict[str, npt.NDArray[Any]] = {name: np.asarray(field, dtype=np.float64) for name, field in fields.items()}
    return arrays | {"trend": np.asarray(kind.trend)}


def _design(kind: _Kind, shape: Shape) -> tuple[Floats, Floats]:
    """The columns whose coefficients are estimated (two means, perhaps a line), and the order from 1."""
    columns = np.zeros((len(shape.runs), 3 if kind.line else 2))
    for arm, where in enumerate(shape.arms):
        columns[where, arm] = 1.0
    order = np.array(shape.order or range(len(columns)), dtype=np.float64) + 1
    if kind.line:
        # From the first boot to the last the line rises by one, so its coefficient is the whole rise.
        columns[:, 2] = (order - order.mean()) / (order.max() - order.min())
    return columns, order


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
    power = np.log(squares)
    power *= -freedom / 2
    power += special.gammaln(freedom / 2)
    return np.asarray(power)


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


def largest(weights: Floats, count: int) -> npt.NDArray[np.int64]:
    """Where the largest weights of each row stand, (M, count) or all if there are no more."""
    if weights.shape[1] <= count:
        return np.broadcast_to(np.arange(weights.shape[1]), weights.shape)
    return np.argpartition(-weights, count, axis=1)[:, :count]


def filled(found: Terms, rows: npt.NDArray[np.int64], centre: Floats, count: int) -> Terms:
    """The likeliest `count` terms of the given cells, for all cells: in the others they have no weight.

    `centre` (M, 1) is what stands in their place there.
    """
    kept = largest(found.log_weight, count)
    shape = len(centre), kept.shape[1]
    whole = (np.full(shape, -np.inf), np.repeat(centre, shape[1], axis=1), np.ones(shape), np.ones(shape))
    for field, part in zip(whole, vars(found).values(), strict=True):
        field[rows] = np.take_along_axis(part, kept, 1)
    return Terms(*whole)


# With so many boots in an arm its variance is known well enough, and no structure adds to it.
_MOST_BOOTS = 64


def folded(batch: Batch) -> Batch:
    """The batch itself, or one in which neighbouring boots of long arms are put together to groups.

    A group stands in the place of a boot, and its boots in that of runs. So a mean of many boots has a smaller variance
    than a single boot of the other arm, and neighbours that hang together are met like runs that do. Their order is no
    longer told: no trend is taken out.
    """
    if max(batch.shape.boots) <= _MOST_BOOTS:
        return batch
    means, within, least, sizes = [], [], [], []
    for place, arm in enumerate(batch.shape.arms):
        size = _sizes(arm.stop - arm.start)
        means.append(_means(batch.means[:, arm], size))
        apart = np.sum((batch.means[:, arm] - np.repeat(means[-1], size, axis=1)) ** 2, axis=1)
        within.append(np.maximum(apart, (size.sum() - len(size)) * batch.least[:, place]))
        least.append(batch.least[:, place] * np.mean(1 / size))
        sizes.append(tuple(size.tolist()))
    return Batch(
        shape=Shape(*sizes),
        means=np.concatenate(means, axis=1),
        within=np.stack(within, axis=1),
        constant=batch.constant,
        grid=batch.grid,
        least=np.stack(least, axis=1),
    )


def _sizes(boots: int) -> np.ndarray:
    groups = min(boots, _MOST_BOOTS)
    return np.diff(np.arange(groups + 1) * boots // groups)


def _means(boots: Floats, size: np.ndarray) -> Floats:
    starts = np.cumsum(size) - size
    means = np.add.reduceat(boots, starts, axis=1) / size
    # Equal boots have exactly their own mean.
    least, most = (extreme.reduceat(boots, starts, axis=1) for extreme in (np.minimum, np.maximum))
    return np.where(least == most, least, means)

"""The ways in which the errors of a cell may hang together, each as a covariance of its boots' means."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from server.stats.shapes import Floats, Shape

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

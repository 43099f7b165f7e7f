"""Which error structures fit a cell, and what they say of the difference on average."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from server.stats.levels import levels
from server.stats.mixtures import Mixture
from server.stats.outliers import outliers
from server.stats.shapes import Floats
from server.stats.structures import Structures, structures_of
from server.stats.terms import Batch, Terms, equal, separate, sums_of

# The likeliest structures are averaged; the others together weigh too little to matter.
_KEPT = 10
# Less than one, so that structures of equal weight do not all vanish.
_ALMOST = 1 - 1e-9
# What kind of structure a term belongs to.
_EQUAL, _SEPARATE, _OUTLIER, _LEVELS, _TREND = range(5)


@dataclass(frozen=True)
class Averaged:
    """The difference of the arms on logs, patched less base, and how likely the peculiarities of a cell are, (M,)."""

    difference: Mixture
    separate: Floats  # the arms have variances of their own
    outlier: Floats  # one boot is an outlier, or two are
    levels: Floats  # the boots fall into two levels
    trend: Floats  # the machine drifts from boot to boot


def average(batch: Batch) -> Averaged:
    """What the structures say of the difference, each with the weight that its fit deserves.

    Each structure gives a t distribution; its weight is its prior times its marginal likelihood (Box and Tiao,
    Bayesian Inference in Statistical Analysis, 1973, chapter 2 and 5; Hoeting et al., Statistical Science 14, 1999).
    """
    sums = sums_of(batch)
    alone = equal(batch, sums)
    groups = [(_EQUAL, alone), (_SEPARATE, separate(batch, sums))]
    groups += [(_OUTLIER, terms) for terms in outliers(batch, sums, alone)]
    groups += [(_LEVELS, terms) for terms in levels(batch, sums, alone)]
    fields = ("log_weight", "centre", "variance", "freedom")
    terms = Terms(*(np.concatenate([getattr(group, field) for _, group in groups], axis=1) for field in fields))
    kinds = np.concatenate([np.full(group.log_weight.shape[1], kind) for kind, group in groups])
    kinds[np.flatnonzero(sums.structures.trend)] = _TREND
    return _averaged(batch, terms, kinds)


def _averaged(batch: Batch, terms: Terms, kinds: npt.NDArray[np.int64]) -> Averaged:
    # Rounding alone leaves nothing to weigh: the structure in which only the boots count.
    log_weight = np.where(batch.constant[:, None], -np.inf, terms.log_weight)
    log_weight[batch.constant, _boots_only(structures_of(batch.shape))] = 0.0
    if log_weight.shape[1] > _KEPT:
        kept = np.argpartition(-log_weight, _KEPT, axis=1)[:, : _KEPT + 1]
    else:
        kept = np.broadcast_to(np.arange(log_weight.shape[1]), log_weight.shape)
    log_weight = np.take_along_axis(log_weight, kept, axis=1)
    weight = np.exp(log_weight - log_weight.max(axis=1, keepdims=True))
    if weight.shape[1] > _KEPT:
        # Lowered by the first one left out, the weights run evenly to nothing: no tie is decided by rounding.
        weight, kept = (weight - weight[:, -1:] * _ALMOST)[:, :-1], kept[:, :-1]
    weight /= weight.sum(axis=1, keepdims=True)
    floor = batch.grid.sum(axis=1, keepdims=True)
    variance = np.maximum(np.take_along_axis(terms.variance, kept, axis=1), floor)
    centre, freedom = (np.take_along_axis(field, kept, axis=1) for field in (terms.centre, terms.freedom))
    shares = [np.sum(weight * (kinds[kept] == kind), axis=1) for kind in (_SEPARATE, _OUTLIER, _LEVELS, _TREND)]
    return Averaged(Mixture(weight, centre, np.sqrt(variance), freedom), *shares)


def _boots_only(structures: Structures) -> int:
    """The structure in which only boots' means count, without a trend."""
    return int(np.flatnonzero((structures.within_factor == 0) & ~structures.trend)[0])

"""Structures for boots that are not like the others: far away, or fallen into two levels."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy import special

from server.stats.cells import Floats
from server.stats.comparison.structures import (
    Batch,
    Sums,
    Terms,
    apart_together,
    filled,
    largest,
    log_power,
    plain_structures,
)

# By how much the variance of an outlier is larger than that of the other boots.
_INFLATION = 200.0
# Prior weight that a certain boot is an outlier; where there is one, a second is likelier.
_PRIORS = (0.02, 0.05)
# The fewest boots of an arm of which one, or two, can be told to be outliers.
_FEWEST = (3, 5)
# A second one is sought in cells where the likeliest first weighs at least so much (a logarithm) against none, and so
# many of the likeliest are kept.
_NEGLIGIBLE = -2.0
_FOLLOWED = 8


@dataclass(frozen=True)
class _State:
    """S structures for M cells, with the outliers so far; a leading axis of 1 where all cells have the same."""

    log_weight: Floats  # (M, S), without the sum of squares
    squares: Floats  # (M, S)
    centre: Floats  # (M, S)
    unit: Floats  # (M or 1, S): variance of the difference, in units of the residual variance
    pull: Floats  # (M, S, B): residuals weighted by the structure
    contrast: Floats  # (M or 1, S, B)
    leverage: Floats  # (M or 1, S, B)

    def rows(self, rows: npt.NDArray[np.int64]) -> "_State":
        parts = vars(self).values()
        return _State(*(part if len(part) == 1 else part[rows] for part in parts))


@dataclass(frozen=True)
class _Scale:
    """What stays the same however many outliers there are; S structures, B boots."""

    exponent: Floats  # (S, 1)
    inflation: Floats  # (S, B)
    residual: Floats  # (S, B, B)
    floor: Floats  # (M, S, 1), of the sums of squares


def outliers(batch: Batch, sums: Sums, alone: Terms) -> list[Terms]:
    """Terms with each boot as the outlier, and with each second one beside the likeliest first.

    `alone` are the terms of the same structures without outliers.
    """
    plain, structures = plain_structures(sums), sums.structures
    exponent = structures.exponent[plain][:, None]
    scale = _Scale(
        exponent=exponent,
        inflation=_INFLATION * structures.boot_variance[plain],
        residual=structures.residual[plain],
        floor=exponent * batch.floor(sums.boots_only[plain])[:, :, None],
    )
    boots = min(batch.shape.boots)
    if boots < _FEWEST[0]:
        return []
    state = _without(batch, sums, plain)
    log_weight, terms = _one_more(state, scale, _PRIORS[0])
    found = [terms]
    if boots >= _FEWEST[1]:
        gain = terms.log_weight.max(axis=1) - alone.log_weight[:, plain].max(axis=1)
        rows = np.flatnonzero(gain > _NEGLIGIBLE)
        first = np.argmax(log_weight[rows], axis=2)
        state, scale = state.rows(rows), replace(scale, floor=scale.floor[rows])
        _, more = _one_more(_with(state, scale, first), scale, _PRIORS[0] * _PRIORS[1])
        same = (np.arange(sum(batch.shape.boots)) == first[:, :, None]).reshape(more.log_weight.shape)
        more = replace(more, log_weight=np.where(same, -np.inf, more.log_weight))
        found.append(filled(more, rows, sums.difference[:, :1], _FOLLOWED))
    return found


def _one_more(state: _State, scale: _Scale, prior: float) -> tuple[Floats, Terms]:
    """Each boot in turn as an outlier beside those in the state: logarithms of weights (M, S, B), and the terms."""
    growth = 1 + scale.inflation * state.leverage
    squares = np.maximum(state.squares[:, :, None] - scale.inflation * state.pull**2 / growth, scale.floor)
    log_weight = state.log_weight[:, :, None] + log_power(squares, scale.exponent) - np.log(growth) / 2 + np.log(prior)
    centre = state.centre[:, :, None] - scale.inflation * state.contrast / growth * state.pull
    unit = state.unit[:, :, None] + scale.inflation * state.contrast**2 / growth
    freedom = np.broadcast_to(scale.exponent, squares.shape)
    fields = (log_weight, centre, squares / scale.exponent * unit, freedom)
    return log_weight, Terms(*(field.reshape(len(squares), np.prod(squares.shape[1:])) for field in fields))


def _without(batch: Batch, sums: Sums, plain: npt.NDArray[np.int64]) -> _State:
    structures = sums.structures
    own = sums.log_prior[:, plain] - structures.log_determinant[plain] / 2
    return _State(
        log_weight=own + sums.boots_only[plain] * apart_together(batch)[:, None],
        squares=sums.squares[:, plain].sum(axis=2),
        centre=sums.difference[:, plain],
        unit=structures.unit_variance[plain][None],
        pull=sums.pull[:, plain],
        contrast=structures.contrast[plain][None],
        leverage=np.einsum("kii->ki", structures.residual[plain])[None],
    )


def _with(state: _State, scale: _Scale, first: npt.NDArray[np.int64]) -> _State:
    """The state with the variance of one boot of each structure inflated: a change of rank one of its covariance.

    Sherman and Morrison's formula (Ann. Math. Statist. 21, 1950) gives all sums from those without the outlier.
    """
    places = np.arange(scale.residual.shape[0])
    column = scale.residual[places, first]  # (M, S, B)
    more = scale.inflation[places, first][:, :, None]

    def at_first(field: Floats) -> Floats:
        whole = np.broadcast_to(field, column.shape)
        return np.take_along_axis(whole, first[:, :, None], axis=2)

    pull, contrast = at_first(state.pull), at_first(state.contrast)
    growth = 1 + more * at_first(state.leverage)
    share = more / growth
    return _State(
        log_weight=state.log_weight - np.log(growth)[:, :, 0] / 2,
        squares=state.squares - (share * pull**2)[:, :, 0],
        centre=state.centre - (share * contrast * pull)[:, :, 0],
        unit=state.unit + (share * contrast**2)[:, :, 0],
        pull=state.pull - share * column * pull,
        contrast=state.contrast - share * column * contrast,
        leverage=state.leverage - share * column**2,
    )


# Boots that fall into two levels: structures in which some boots of both arms share one shift.
#
# Pages land elsewhere in each boot, and some machines then run at one of two levels. Where the levels are further
# apart than the other noise, telling them apart leaves much less noise than calling all of it noise.

# Prior weight of two levels. It is shared out among the cuts: if a boot lies on the lower level with a probability of
# which nothing is known, so likely is it that just these boots do.
_PRIOR = 0.5
# Variance of the distance of the levels, in units of the variance of a boot's mean.
_DISTANCE = 30.0
# How likely it is against that, that the patch changes how often each level is taken. Then averages are compared.
_OTHER_SHARES = 0.3
# A single boot apart is an outlier, not a level.
_FEWEST_APART = 2
# From so many boots an arm can show levels; beyond so many there would be too many cuts.
_BOOTS = (4, 24)
# Cuts are ranked in this structure (runs correlate by 0.3); so many of the likeliest are followed up, in cells where
# the best of them weighs at least so much (a logarithm) against none.
_RANKING, _FOLLOWED_CUTS, _NEGLIGIBLE_CUT = 1, 8, -4.0

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Cuts:
    """How many boots of base and of patched lie on the lower level; fields are (C,) or (M, C)."""

    counts: tuple[Indices, Indices]
    log_prior: Floats
    log_odds: Floats  # of levels that the arms take in shares of their own, against equal shares

    def take(self, chosen: Indices) -> "_Cuts":
        base, patched = self.counts
        return _Cuts((base[chosen], patched[chosen]), self.log_prior[chosen], self.log_odds[chosen])


@dataclass(frozen=True)
class _Lower:
    """What lies on the lower level of one arm, in M cells, S structures and C cuts."""

    pull: Floats  # (M, S, C)
    precision: Floats  # (M or 1, S, C)
    share: Floats  # (M or 1, S, C), of the arm's precision


def levels(batch: Batch, sums: Sums, alone: Terms) -> list[Terms]:
    """Terms in which the lowest boots of base and the lowest of patched lie on a level of their own.

    `alone` are the terms of the same structures without levels.
    """
    boots = batch.shape.boots
    if min(boots) < _BOOTS[0] or max(boots) > _BOOTS[1]:
        return []
    cuts, plain = _cuts(boots), plain_structures(sums)
    boots_only = plain[sums.boots_only[plain] == 1]
    ranked = _gains(batch, sums, alone, plain[[min(_RANKING, len(plain) - 1)]], cuts).log_weight
    rows = np.flatnonzero(ranked.max(axis=1) > _NEGLIGIBLE_CUT)
    likely = cuts.take(largest(ranked[rows], _FOLLOWED_CUTS))
    few, few_sums, before = _of_cells(rows, batch, sums, alone)
    found = _gains(few, few_sums, before, plain, likely)
    weight = np.repeat(before.log_weight[:, plain], likely.log_prior.shape[1], axis=1)
    found = replace(found, log_weight=weight + found.log_weight)
    found = _joined(found, _averages(before, found.log_weight, likely, int(boots_only[0])))
    return [filled(found, rows, sums.difference[:, :1], _FOLLOWED_CUTS)]


def _of_cells(rows: Indices, batch: Batch, sums: Sums, alone: Terms) -> tuple[Batch, Sums, Terms]:
    """What is needed here of the given cells."""
    few = replace(batch, means=batch.means[rows], grid=batch.grid[rows], least=batch.least[rows])
    return few, replace(sums, pull=sums.pull[rows]), Terms(*(field[rows] for field in vars(alone).values()))


def _cuts(boots: tuple[int, int]) -> _Cuts:
    counts = np.indices((boots[0] + 1, boots[1] + 1)).reshape(2, -1)
    lower, upper = counts.sum(axis=0), sum(boots) - counts.sum(axis=0)
    apart = np.minimum(lower, upper) >= _FEWEST_APART
    # The lower level may be the rarer or the commoner one: the same cut, twice.
    log_prior = special.betaln(1 + lower, 1 + upper) + np.log(2 * _PRIOR)
    own = sum(special.betaln(1 + count, 1 + size - count) for count, size in zip(counts, boots, strict=True))
    log_odds = np.log(_OTHER_SHARES) + own - special.betaln(1 + lower, 1 + upper)
    return _Cuts((counts[0, apart], counts[1, apart]), log_prior[apart], log_odds[apart])


def _averages(alone: Terms, log_weight: Floats, cuts: _Cuts, boots_only: int) -> Terms:
    """The comparison of averages (M, 1), weighted as all cuts say whose levels the arms take in shares of their own."""
    odds = np.tile(cuts.log_odds, log_weight.shape[1] // cuts.log_odds.shape[1])
    together = np.logaddexp.reduce(log_weight + odds, axis=1)[:, None]
    return replace(Terms(*(field[:, [boots_only]] for field in vars(alone).values())), log_weight=together)


def _joined(*parts: Terms) -> Terms:
    return Terms(
        *(np.concatenate(fields, axis=1) for fields in zip(*(vars(part).values() for part in parts), strict=True))
    )


def _gains(batch: Batch, sums: Sums, alone: Terms, structures: Indices, cuts: _Cuts) -> Terms:
    """Terms with levels in some structures (M, S * C); their weights are those against the structure alone.

    A shift that some boots share is a change of rank one of the covariance (Sherman and Morrison, Ann. Math.
    Statist. 21, 1950).
    """
    known = sums.structures
    base, patched = (
        _lower(batch.means[:, arm], sums.pull[:, structures, arm], 1 / known.boot_variance[structures, arm], counts)
        for arm, counts in zip(batch.shape.arms, cuts.counts, strict=True)
    )
    more, unit, exponent = (
        field[structures][:, None]
        for field in (_DISTANCE * known.boot_variance.mean(axis=1), known.unit_variance, known.exponent)
    )
    variance, centre = (field[:, structures, None] for field in (alone.variance, alone.centre))
    leverage = base.precision * (1 - base.share) + patched.precision * (1 - patched.share)
    pull, contrast, growth = base.pull + patched.pull, patched.share - base.share, 1 + more * leverage
    old = variance / unit * exponent
    squares = np.maximum(old - more * pull**2 / growth, exponent * batch.floor(sums.boots_only[structures])[:, :, None])
    log_prior = cuts.log_prior if cuts.log_prior.ndim == 1 else cuts.log_prior[:, None, :]
    gain = log_prior - exponent / 2 * np.log(squares / old) - np.log(growth) / 2
    fields = (
        gain,
        centre - more * contrast / growth * pull,
        squares / exponent * (unit + more * contrast**2 / growth),
        np.broadcast_to(exponent, squares.shape),
    )
    return Terms(*(field.reshape(len(squares), np.prod(squares.shape[1:])) for field in fields))


def _lower(means: Floats, pull: Floats, precision: Floats, counts: Indices) -> _Lower:
    """Sums over the lowest boots of one arm; `means` (M, B), `pull` (M, S, B), `precision` (S, B)."""
    order = np.argsort(means, axis=1, kind="stable")[:, None, :]
    # Boots of as many runs are equally precise, in whatever order.
    alike = bool(np.all(precision == precision[:, :1]))
    sorted_precision = precision[None] if alike else np.take_along_axis(precision[None], order, 2)
    at = counts[None, None, :] if counts.ndim == 1 else counts[:, None, :]
    lower = np.take_along_axis(_summed(sorted_precision), at, 2)
    share = lower / precision.sum(axis=1)[:, None]
    return _Lower(np.take_along_axis(_summed(np.take_along_axis(pull, order, 2)), at, 2), lower, share)


def _summed(parts: Floats) -> Floats:
    """Sums of the first 0, 1, ... along the last axis."""
    sums = np.zeros((*parts.shape[:2], parts.shape[2] + 1))
    np.cumsum(parts, axis=2, out=sums[:, :, 1:])
    return sums

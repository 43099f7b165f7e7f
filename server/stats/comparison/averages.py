"""Which error structures fit a cell, those of odd boots among them, and what they say of the difference on average:
mixtures of t distributions.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from server.stats.cells import Floats
from server.stats.comparison.mixtures import Mixture
from server.stats.comparison.structures import (
    Batch,
    Structures,
    Sums,
    Terms,
    apart_together,
    equal,
    filled,
    largest,
    log_power,
    plain_structures,
    separate,
    structures_of,
    sums_of,
)
from server.stats.functions import special

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
    log_weight = _one_more(state, scale, _PRIORS[0])
    terms = _likeliest(state, scale, log_weight, _KEPT + 1)
    found = [terms]
    if boots >= _FEWEST[1]:
        gain = terms.log_weight.max(axis=1) - alone.log_weight[:, plain].max(axis=1)
        rows = np.flatnonzero(gain > _NEGLIGIBLE)
        first = np.argmax(log_weight[rows], axis=2)
        state, scale = state.rows(rows), replace(scale, floor=scale.floor[rows])
        state = _with(state, scale, first)
        more = _one_more(state, scale, _PRIORS[0] * _PRIORS[1])
        more[np.arange(sum(batch.shape.boots)) == first[:, :, None]] = -np.inf
        found.append(filled(_likeliest(state, scale, more, _FOLLOWED), rows, sums.difference[:, :1], _FOLLOWED))
    return found


def _one_more(state: _State, scale: _Scale, prior: float) -> Floats:
    """How likely each boot is an outlier beside those in the state: logarithms of weights, (M, S, B)."""
    growth = 1 + scale.inflation * state.leverage
    squares = _squares(state.squares[:, :, None], state.pull, scale.inflation / growth, scale.floor)
    log_weight = log_power(squares, scale.exponent)
    log_weight += state.log_weight[:, :, None]
    log_weight += np.log(prior) - np.log(growth) / 2
    return log_weight


def _squares(squares: Floats, pull: Floats, share: Floats, floor: Floats) -> Floats:
    """What is left of sums of squares without the part that a pull explains, and not less than the floor."""
    left = np.square(pull)
    left *= share
    np.subtract(squares, left, out=left)
    return np.maximum(left, floor, out=left)


def _likeliest(state: _State, scale: _Scale, log_weight: Floats, count: int) -> Terms:
    """The terms of the `count` likeliest outliers of each cell, of those that `_one_more` weighed."""
    cells, structures, boots = log_weight.shape
    together = log_weight.reshape(cells, structures * boots)
    kept = largest(together, count)
    cell, structure, boot = np.arange(cells)[:, None], kept // boots, kept % boots

    def of_boot(field: Floats) -> Floats:
        return np.asarray(field[0, structure, boot] if len(field) == 1 else field[cell, structure, boot])

    inflation, exponent = scale.inflation[structure, boot], scale.exponent[structure, 0]
    growth = 1 + inflation * of_boot(state.leverage)
    pull, contrast = of_boot(state.pull), of_boot(state.contrast)
    floor = scale.floor[cell, structure, 0]
    squares = _squares(state.squares[cell, structure], pull, inflation / growth, floor)
    unit = state.unit[0, structure] if len(state.unit) == 1 else state.unit[cell, structure]
    return Terms(
        np.take_along_axis(together, kept, 1),
        state.centre[cell, structure] - inflation * contrast / growth * pull,
        squares / exponent * (unit + inflation * contrast**2 / growth),
        exponent,
    )


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


@dataclass(frozen=True)
class _Shifted:
    """S structures with a shift of the boots below C cuts, in M cells; (M, S, C) or (S, 1)."""

    gain: Floats  # logarithms of weights against the structure alone
    squares: Floats
    pull: Floats
    contrast: Floats
    more: Floats  # how much of the pull the shift explains
    unit: Floats
    exponent: Floats

    def terms(self, centre: Floats, log_weight: Floats) -> Terms:
        """Terms (M, S * C); `centre` and `log_weight` (M, S) are those of the structures alone."""
        fields = (
            log_weight[:, :, None] + self.gain,
            centre[:, :, None] - self.more * self.contrast * self.pull,
            self.squares / self.exponent * (self.unit + self.more * self.contrast**2),
            np.broadcast_to(self.exponent, self.squares.shape),
        )
        return Terms(*(field.reshape(len(self.squares), np.prod(self.squares.shape[1:])) for field in fields))


def levels(batch: Batch, sums: Sums, alone: Terms) -> list[Terms]:
    """Terms in which the lowest boots of base and the lowest of patched lie on a level of their own.

    `alone` are the terms of the same structures without levels.
    """
    boots = batch.shape.boots
    if min(boots) < _BOOTS[0] or max(boots) > _BOOTS[1]:
        return []
    cuts, plain = _cuts(boots), plain_structures(sums)
    boots_only = plain[sums.boots_only[plain] == 1]
    ranked = _shifted(batch, sums, alone, plain[[min(_RANKING, len(plain) - 1)]], cuts).gain[:, 0]
    rows = np.flatnonzero(ranked.max(axis=1) > _NEGLIGIBLE_CUT)
    likely = cuts.take(largest(ranked[rows], _FOLLOWED_CUTS))
    few, few_sums, before = _of_cells(rows, batch, sums, alone)
    shifted = _shifted(few, few_sums, before, plain, likely)
    found = shifted.terms(before.centre[:, plain], before.log_weight[:, plain])
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


def _shifted(batch: Batch, sums: Sums, alone: Terms, structures: Indices, cuts: _Cuts) -> _Shifted:
    """Levels in some structures.

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
    leverage = base.precision * (1 - base.share) + patched.precision * (1 - patched.share)
    pull, growth = base.pull + patched.pull, 1 + more * leverage
    old = alone.variance[:, structures, None] / unit * exponent
    floor = exponent * batch.floor(sums.boots_only[structures])[:, :, None]
    squares = _squares(old, pull, more / growth, floor)
    log_prior = cuts.log_prior if cuts.log_prior.ndim == 1 else cuts.log_prior[:, None, :]
    gain = log_prior - exponent / 2 * np.log(squares / old) - np.log(growth) / 2
    return _Shifted(gain, squares, pull, patched.share - base.share, more / growth, unit, exponent)


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

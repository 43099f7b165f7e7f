"""Boots that are far from the others: structures in which one or two boots have a much larger variance."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from server.stats.shapes import Floats
from server.stats.sparing import filled
from server.stats.terms import Batch, Sums, Terms, apart_together, log_power, plain_structures

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

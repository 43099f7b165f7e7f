"""Terms that only some cells need are computed for those alone."""

import numpy as np
import numpy.typing as npt

from server.stats.shapes import Floats
from server.stats.terms import Terms


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

"""Whether the boots of a cell fall into two groups."""

import math

import numpy as np

from server.stats.shapes import Floats

# From fewer boots two groups cannot be told from chance.
_FEWEST = 8
# Each group has at least so many boots: one alone is an outlier.
_SMALLEST_GROUP = 2
# Of the sum of squares of normal values the best cut leaves 1 - 2/pi inside the groups, of B boots somewhat more or
# less; less than this minus 0.92 / sqrt(B) in one cell of 200 (simulated for 8 to 32 boots).
_LEFT = 1 - 2 / math.pi
_CHANCE = 0.92


def bimodal(means: Floats) -> np.ndarray:
    """Which of M cells have boots in two groups; `means` (M, B) on logs, with the difference of the arms taken out.

    The best cut into two groups by sums of squares (Fisher, J. Amer. Statist. Assoc. 53, 1958).
    """
    boots = means.shape[1]
    if boots < _FEWEST:
        return np.zeros(len(means), dtype=bool)
    ordered = np.sort(means - means.mean(axis=1, keepdims=True), axis=1)
    total = np.sum(ordered**2, axis=1)
    size = np.arange(_SMALLEST_GROUP, boots - _SMALLEST_GROUP + 1)
    sums = np.cumsum(ordered, axis=1)[:, size - 1]
    # The groups' sums are opposite, as all values sum to zero.
    between = np.max(sums**2 * (1 / size + 1 / (boots - size)), axis=1)
    return np.asarray((total > 0) & (total - between < (_LEFT - _CHANCE / math.sqrt(boots)) * total))

"""The permutation test of two means (Fisher, The Design of Experiments, 1935; Pitman 1937), by full enumeration."""

import math
from functools import lru_cache
from itertools import combinations

import numpy as np

from server.stats.shapes import Floats

# Eight boots a side have 12 870 relabellings; of more boots not even the number is worth knowing.
_MOST_RELABELLINGS = 13_000
_MOST_BOOTS = 200
# Cells are worked off in portions whose relabelled differences fit into a processor's nearest cache.
_PORTION = 8
# Relabellings that only rounding tells from the observed one count as equally far; in units of the largest value.
_ROUNDING = 1e-9


def permutation_tests(means: Floats, base: int) -> list[float] | None:
    """Two-sided p-values of M cells: the share of relabellings whose difference is as large as the observed one.

    `means` (M, B) with the base boots first; None where there are too many relabellings to go through.
    """
    boots = means.shape[1]
    if boots > _MOST_BOOTS or math.comb(boots, base) > _MOST_RELABELLINGS:
        return None
    labels = _labels(boots, base)
    p_values: list[float] = []
    for start in range(0, len(means), _PORTION):
        part = means[start : start + _PORTION]
        centred = part - part.mean(axis=1, keepdims=True)
        differences = np.abs(centred @ labels)
        # The first relabelling is the observed labelling itself.
        least = differences[:, :1] - _ROUNDING * np.abs(centred).max(axis=1, keepdims=True)
        p_values += np.mean(differences >= least, axis=1).tolist()
    return p_values


@lru_cache(maxsize=64)
def _labels(boots: int, base: int) -> Floats:
    """One column for each relabelling: the contrast of its arms' means."""
    # With equal arms a relabelling and its mirror image are equally far: the first boot stays in base.
    chosen = [subset for subset in combinations(range(boots), base) if 2 * base != boots or subset[0] == 0]
    columns = np.full((boots, len(chosen)), 1 / (boots - base))
    for column, subset in enumerate(chosen):
        columns[list(subset), column] = -1 / base
    return columns

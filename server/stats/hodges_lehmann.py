"""The shift between two samples by the median of all differences, with the interval that inverts the rank test."""

from dataclasses import dataclass

import numpy as np
from scipy import special

from server.stats.ranks import pairs_above
from server.stats.shapes import Floats

# Beyond this many boots in both arms together the ranks of the interval come from the normal approximation.
_MOST_EXACT = 40
# Two samples have as many differences as pairs; beyond so many the companion is not worth its memory.
_MOST_PAIRS = 250_000


@dataclass(frozen=True)
class Shifts:
    """One shift for each of M cells, on the scale of the data; no interval where too few boots allow none."""

    shift: Floats
    interval: tuple[Floats, Floats] | None


def shifts(base: Floats, patched: Floats, alpha: float) -> Shifts | None:
    """Patched less base; base (M, n), patched (M, m) (Hodges and Lehmann, Ann. Math. Statist. 34, 1963).

    None for samples so large that their pairs are too many to sort.
    """
    if base.shape[1] * patched.shape[1] > _MOST_PAIRS:
        return None
    differences = np.sort((patched[:, None, :] - base[:, :, None]).reshape(len(base), -1), axis=1)
    pairs = differences.shape[1]
    shift = (differences[:, (pairs - 1) // 2] + differences[:, pairs // 2]) / 2
    outside = _left_out(base.shape[1], patched.shape[1], alpha)
    if outside < 1:
        return Shifts(shift, None)
    return Shifts(shift, (differences[:, outside - 1], differences[:, pairs - outside]))


def _left_out(base: int, patched: int, alpha: float) -> int:
    """Which difference from either end bounds the interval; 0 where even the outermost would not hold the level."""
    if base + patched <= _MOST_EXACT:
        below = np.cumsum(pairs_above(base, patched))
        return int(np.searchsorted(below, alpha / 2 * (1 + 1e-12), side="right"))
    mean, variance = base * patched / 2, base * patched * (base + patched + 1) / 12
    return max(0, int(mean + special.ndtri(alpha / 2) * np.sqrt(variance)))

"""The exact rank test of Mann and Whitney on two small samples, ties included."""

import math
from functools import lru_cache

import numpy as np
from scipy import stats

from server.stats.shapes import Floats

# Beyond this many boots in both arms together the normal approximation is as good and much faster.
_MOST_EXACT = 40


def rank_tests(base: Floats, patched: Floats) -> list[float]:
    """`rank_test` of many cells at once; base (M, n), patched (M, m)."""
    if base.shape[1] + patched.shape[1] > _MOST_EXACT:
        return [rank_test(*row) for row in zip(base, patched, strict=True)]
    together = np.sort(np.concatenate([base, patched], axis=1), axis=1)
    tied = np.any(together[:, 1:] == together[:, :-1], axis=1)
    above = np.sum(patched[:, None, :] > base[:, :, None], axis=(1, 2))
    p_values: list[float] = _by_pairs_above(base.shape[1], patched.shape[1])[above].tolist()
    for row in np.flatnonzero(tied):
        p_values[row] = rank_test(base[row], patched[row])
    return p_values


def rank_test(base: Floats, patched: Floats) -> float:
    """Two-sided p-value: how often relabelling the boots moves the rank sum as far from its mean as it is now."""
    together = np.concatenate([base, patched])
    if len(together) > _MOST_EXACT:
        return float(stats.mannwhitneyu(base, patched, method="asymptotic").pvalue) if np.ptp(together) else 1.0
    # Tied values share the mean of their ranks; doubled, all ranks are whole numbers.
    doubled = np.rint(2 * stats.rankdata(together)).astype(int)
    observed = int(doubled[: len(base)].sum())
    return _two_sided(tuple(sorted(doubled.tolist())), len(base), observed)


@lru_cache(maxsize=4096)
def _two_sided(ranks: tuple[int, ...], chosen: int, observed: int) -> float:
    sums = subset_sums(ranks, chosen)
    # Compared in whole numbers: sums times the sample size against the total times the chosen.
    scaled, centre = np.arange(len(sums)) * len(ranks), sum(ranks) * chosen
    extreme = np.abs(scaled - centre) >= abs(observed * len(ranks) - centre)
    return min(1.0, float(sums[extreme].sum()) / math.comb(len(ranks), chosen))


def subset_sums(ranks: tuple[int, ...], chosen: int) -> Floats:
    """How many subsets of `chosen` ranks have each sum (Streitberg and Roehmel 1986, the shift algorithm)."""
    total = sum(ranks)
    counts = np.zeros((chosen + 1, total + 1))
    counts[0, 0] = 1
    for rank in ranks:
        counts[1:, rank:] += counts[:-1, : total + 1 - rank].copy()
    return np.asarray(counts[chosen])


@lru_cache(maxsize=256)
def pairs_above(base: int, patched: int) -> Floats:
    """The chance of each number of pairs in which the patched boot is above, when nothing is tied."""
    ranks = tuple(range(base + patched))
    least = base * (base - 1) // 2
    return subset_sums(ranks, base)[least : least + base * patched + 1] / math.comb(base + patched, base)


@lru_cache(maxsize=256)
def _by_pairs_above(base: int, patched: int) -> Floats:
    chance = pairs_above(base, patched)
    below = np.cumsum(chance)
    smaller = np.minimum(below, below[::-1])
    return np.asarray(np.minimum(1.0, 2 * smaller))

"""The exact rank test of Mann and Whitney on two small samples, ties included."""

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy import stats

# Beyond this many boots in both arms together the normal approximation is as good and much faster.
_MOST_EXACT = 40


def rank_test(base: npt.NDArray[np.float64], patched: npt.NDArray[np.float64]) -> float:
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
    """Counts the subsets of `chosen` ranks by their sum (Streitberg and Roehmel 1986, the shift algorithm)."""
    total = sum(ranks)
    counts = np.zeros((chosen + 1, total + 1))
    counts[0, 0] = 1
    for rank in ranks:
        counts[1:, rank:] += counts[:-1, : total + 1 - rank].copy()
    # Compared in whole numbers: sums times the sample size against the total times the chosen.
    sums = np.arange(total + 1) * len(ranks)
    centre = total * chosen
    extreme = np.abs(sums - centre) >= abs(observed * len(ranks) - centre)
    return min(1.0, float(counts[chosen, extreme].sum()) / math.comb(len(ranks), chosen))

"""Many cells are judged at once: the family's adjustment keeps false alarms rare among what is reported."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from server.stats.cells import Comparison, Verdict

FALSE_DISCOVERY_RATE = 0.05


def benjamini_hochberg(p_values: Sequence[float]) -> npt.NDArray[np.float64]:
    """Adjusted p-values: those at or below q are the discoveries at false discovery rate q.

    Benjamini and Hochberg, J. R. Statist. Soc. B 57 (1995): the step-up procedure.
    """
    p = np.asarray(p_values, dtype=np.float64)
    if p.size and not bool(np.all((p >= 0) & (p <= 1))):
        raise ValueError("p-values lie between 0 and 1")
    order = np.argsort(p)[::-1]
    scaled = p[order] * p.size / np.arange(p.size, 0, -1)
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(np.minimum.accumulate(scaled), 1.0)
    return adjusted


def judge_family(comparisons: Sequence[Comparison], *, families: int = 1) -> list[Comparison]:
    """Adjust over all cells that could be tested; a change that does not survive it is inconclusive.

    Cells of a sequential design come as `CellProgress.comparison`, with the p-value of the whole design.
    Of several `families` that are reported together each gets its equal share of the false discovery rate q: the false
    share of all discoveries is at most the sum of those of the families, so its mean is at most q, however families
    hang together and whatever the values of the others are. `family_size` is what a p-value is multiplied with.
    """
    if families < 1:
        raise ValueError("a family is one of at least one")
    tested = [c.p_value for c in comparisons if c.p_value is not None]
    adjusted = iter(np.minimum(benjamini_hochberg(tested) * families, 1.0))
    size = len(tested) * families
    return [
        replace(c, family_size=size) if c.p_value is None else _judge(c, float(next(adjusted)), size)
        for c in comparisons
    ]


def _judge(comparison: Comparison, adjusted: float, family_size: int) -> Comparison:
    judged = replace(comparison, p_adjusted=adjusted, family_size=family_size)
    claims_change = comparison.verdict in (Verdict.REGRESSED, Verdict.IMPROVED)
    if not claims_change or adjusted <= FALSE_DISCOVERY_RATE:
        return judged
    reason = (
        f"{comparison.verdict} on its own, but among {family_size} cells chance may do this (adjusted p {adjusted:.2g})"
    )
    return replace(judged, verdict=Verdict.INCONCLUSIVE, reason=reason)

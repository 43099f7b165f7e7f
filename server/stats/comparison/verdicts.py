"""Base against patched: ratio with its interval, evidence, verdict. The formulas are told in docs/statistics.md."""

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from server.stats.cells import (
    FEWEST_BOOTS,
    Arm,
    Cell,
    CellComparison,
    Flag,
    Floats,
    NoVerdict,
    Shape,
    StatisticalVerdict,
    grouped,
    padded,
    refuse_words,
)
from server.stats.comparison.estimates import (
    Estimates,
    Side,
    Summaries,
    estimate,
    further,
    read_side,
    sharpened,
    summarise,
)
from server.stats.functions import special, stats

# Beyond these the exponential leaves the range of floats.
LARGEST_LOG = 700.0


def verdict_of(cell: Cell, low: float, high: float) -> StatisticalVerdict:
    """`low` to `high` is the interval of the difference on logs; a verdict needs it wholly on one side of a limit."""
    limit = math.log1p(cell.min_effect)
    if -limit < low and high < limit:
        return StatisticalVerdict.UNCHANGED
    if low > limit:
        return StatisticalVerdict.REGRESSED if cell.better == "lower" else StatisticalVerdict.IMPROVED
    if high < -limit:
        return StatisticalVerdict.IMPROVED if cell.better == "lower" else StatisticalVerdict.REGRESSED
    return StatisticalVerdict.INCONCLUSIVE


def undecided(cell: Cell, ratio_low: float, ratio_high: float) -> str:
    """The reason of a cell whose interval allows no verdict."""
    return (
        f"the interval {ratio_low:.3g} to {ratio_high:.3g} lies neither within "
        f"nor beyond a change of {100 * cell.min_effect:.2g} %"
    )


def smallest_seen(*, min_effect: Floats, distance: Floats) -> Floats:
    """The minimum detectable effect: the change that each cell would have called with a probability of 80 %.

    A verdict needs the whole 95 % interval beyond `min_effect`. That happens with probability 0.80 when the true
    change lies (t[0.975] + t[0.80]) standard errors beyond it (Bloom, Evaluation Review 19, 1995: the same sum of two
    quantiles for a test against zero); `distance` is that product, on logs. It is never below `min_effect`, because
    smaller changes are called `unchanged` on purpose.
    """
    return np.asarray(np.expm1(np.minimum(np.log1p(min_effect) + distance, LARGEST_LOG)))


def foreseen(*, boot_sd: float, boots: int, min_effect: float, alpha: float = 0.05) -> float:
    """`smallest_seen` of a cell that is not measured yet, with so many boots a side (two at least).

    `boot_sd` is the standard deviation between boots, on logs. Only boots count, alike in both arms: where runs tell
    more of the noise, a smaller change is seen.
    """
    freedom = np.array(2.0 * boots - 2.0)
    half = float(special.stdtrit(freedom, 1 - alpha / 2)) * boot_sd * math.sqrt(2 / boots)
    return float(smallest_seen(min_effect=np.array(min_effect), distance=half * further(freedom, alpha)))


def ratios(logs: Floats) -> list[float]:
    values: list[float] = np.exp(np.clip(logs, -LARGEST_LOG, LARGEST_LOG)).tolist()
    return values


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


ALPHA = 0.05
# Above it an interval need not hold its own middle.
_WIDEST = 0.5
# The first look of the sequential design: below it intervals are wide.
_ENOUGH_BOOTS = 4
# What these flags say matters only where boots differ by more than this share of the minimum effect.
_PECULIAR = (Flag.UNEQUAL_SPREAD, Flag.TREND, Flag.OUTLYING_BOOT, Flag.BIMODAL)
_TINY = 0.05
# Cells are worked off in portions, so that memory does not grow with their number: so many values and pairs of boots.
_PORTION = 4_000_000
_MOST_CELLS = 2048


def compare(cells: Sequence[Cell], *, alpha: float = ALPHA) -> list[CellComparison]:
    """One comparison for each cell, each judged on its own; `judge_family` then judges them together.

    `alpha` is the two-sided level: intervals hold 1 - alpha. Data never raise: what cannot be judged is
    `inconclusive` with a reason.
    """
    if not 0 < alpha <= _WIDEST:
        raise ValueError(f"alpha: {alpha!r} is no number above 0 and up to {_WIDEST}")
    found: dict[int, CellComparison] = {}
    for shape, places in grouped(cells).items():
        size = _portion(shape)
        for start in range(0, len(places), size):
            portion = places[start : start + size]
            found.update(zip(portion, _of_one_shape([cells[place] for place in portion], shape, alpha), strict=True))
    return [found[place] for place in range(len(cells))]


def _portion(shape: Shape) -> int:
    boots = len(shape.runs)
    each = max(boots * int(shape.runs.max(initial=1)), boots**2, 1)
    return max(1, min(_MOST_CELLS, _PORTION // each))


def _of_one_shape(cells: Sequence[Cell], shape: Shape, alpha: float) -> list[CellComparison]:
    if min(shape.boots) < FEWEST_BOOTS:
        return [_unjudged(cell) for cell in cells]
    values = padded(cells, shape)
    filler = np.arange(values.shape[2]) >= shape.runs[:, None]
    good = np.all((np.isfinite(values) & (values > 0)) | filler, axis=(1, 2))
    judged: Iterator[CellComparison] = iter(())
    if good.any():
        usable = [cell for cell, fine in zip(cells, good, strict=True) if fine]
        judged = iter(_judged(usable, summarise(values[good], shape), alpha))
    return [next(judged) if fine else _unjudged(cell) for cell, fine in zip(cells, good, strict=True)]


def _unjudged(cell: Cell) -> CellComparison:
    refuse_words(cell)
    base, patched = read_side("base", cell.base), read_side("patched", cell.patched)
    flags = {side.flag: None for side in (base, patched) if side.flag is not None}
    return CellComparison(
        verdict=StatisticalVerdict.INCONCLUSIVE,
        reason="; ".join(side.problem for side in (base, patched) if side.problem),
        flags=tuple(flags),
        base=base.arm,
        patched=patched.arm,
        ratio=_plain_ratio(base, patched),
        reason_code=NoVerdict.NO_DATA,
    )


def _plain_ratio(base: Side, patched: Side) -> float | None:
    if not (base.values.size and patched.values.size):
        return None
    return ratios(np.array([np.mean(np.log(patched.values)) - np.mean(np.log(base.values))]))[0]


def _judged(cells: Sequence[Cell], summaries: Summaries, alpha: float) -> list[CellComparison]:
    estimates = sharpened(cells, summaries, estimate(cells, summaries, alpha))
    boots = summaries.shape.boots
    mde = smallest_seen(min_effect=np.array([cell.min_effect for cell in cells]), distance=estimates.visible)
    flags = _flags(cells, estimates, few=min(boots) < _ENOUGH_BOOTS)
    columns = [ratios(log) for log in (estimates.difference, estimates.low, estimates.high)]
    columns += [column.tolist() for column in (estimates.p_value, estimates.low, estimates.high, mde)]
    columns += [estimates.means.tolist(), estimates.deviations.tolist()]
    base, patched = summaries.shape.arms
    columns.append(rank_tests(summaries.values[:, base], summaries.values[:, patched]))
    results = []
    for cell, flag, row in zip(cells, flags, zip(*columns, strict=True), strict=True):
        ratio, ratio_low, ratio_high, p_value, low, high, smallest, means, deviations, p_rank = row
        verdict = verdict_of(cell, low, high)
        is_open = verdict is StatisticalVerdict.INCONCLUSIVE
        results.append(
            CellComparison(
                verdict=verdict,
                reason=undecided(cell, ratio_low, ratio_high) if is_open else "",
                reason_code=NoVerdict.UNDECIDED if is_open else "",
                flags=flag,
                base=Arm(boots[0], means[0], deviations[0]),
                patched=Arm(boots[1], means[1], deviations[1]),
                ratio=ratio,
                ratio_low=ratio_low,
                ratio_high=ratio_high,
                p_value=p_value,
                p_rank=p_rank,
                mde=smallest,
            )
        )
    return results


def _flags(cells: Sequence[Cell], estimates: Estimates, *, few: bool) -> list[tuple[Flag, ...]]:
    shown = {
        Flag.FEW_BOOTS: np.full(len(cells), few),
        Flag.ZERO_SPREAD: estimates.zero_spread,
        Flag.UNEQUAL_SPREAD: estimates.unequal,
        Flag.TREND: estimates.trend,
        Flag.OUTLYING_BOOT: estimates.outlying,
        Flag.BIMODAL: estimates.bimodal,
        Flag.EXACT_VARIES: np.array([cell.exact for cell in cells]) & ~estimates.exact,
    }
    tiny = _tiny(cells, estimates)
    for name in _PECULIAR:
        shown[name] = shown[name] & ~tiny
    table = np.stack(list(shown.values()), axis=1)
    found: list[tuple[Flag, ...]] = [()] * len(cells)
    for place in np.flatnonzero(table.any(axis=1)).tolist():
        found[place] = tuple(name for name, shows in zip(shown, table[place].tolist(), strict=True) if shows)
    return found


def _tiny(cells: Sequence[Cell], estimates: Estimates) -> np.ndarray:
    """Whether boots differ so little that how they differ is nobody's concern, (M,)."""
    limits = _TINY * np.array([cell.min_effect for cell in cells])
    return np.asarray(np.all(estimates.deviations <= limits[:, None] * estimates.means, axis=1))

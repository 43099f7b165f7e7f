"""Base against patched: ratio with its interval, evidence, verdict. The formulas are told in docs/statistics.md."""

from collections.abc import Iterator, Sequence

import numpy as np

from server.stats import exact
from server.stats.boots import Side, read_side
from server.stats.cells import Arm, Cell, Comparison, Flag, Verdict, refuse_words
from server.stats.estimates import Estimates, estimate
from server.stats.judging import ratios, smallest_seen, undecided, verdict_of
from server.stats.ranks import rank_tests
from server.stats.shapes import FEWEST_BOOTS, Shape, grouped, padded
from server.stats.summaries import Summaries, summarise

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


def compare(cells: Sequence[Cell], *, alpha: float = ALPHA) -> list[Comparison]:
    """One comparison for each cell, each judged on its own; `judge_family` then judges them together.

    `alpha` is the two-sided level: intervals hold 1 - alpha. Data never raise: what cannot be judged is
    `inconclusive` with a reason.
    """
    if not 0 < alpha <= _WIDEST:
        raise ValueError(f"alpha: {alpha!r} is no number above 0 and up to {_WIDEST}")
    found: dict[int, Comparison] = {}
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


def _of_one_shape(cells: Sequence[Cell], shape: Shape, alpha: float) -> list[Comparison]:
    if min(shape.boots) < FEWEST_BOOTS:
        return [_unjudged(cell) for cell in cells]
    values = padded(cells, shape)
    filler = np.arange(values.shape[2]) >= shape.runs[:, None]
    good = np.all((np.isfinite(values) & (values > 0)) | filler, axis=(1, 2))
    judged: Iterator[Comparison] = iter(())
    if good.any():
        usable = [cell for cell, fine in zip(cells, good, strict=True) if fine]
        judged = iter(_judged(usable, summarise(values[good], shape), alpha))
    return [next(judged) if fine else _unjudged(cell) for cell, fine in zip(cells, good, strict=True)]


def _unjudged(cell: Cell) -> Comparison:
    refuse_words(cell)
    base, patched = read_side("base", cell.base), read_side("patched", cell.patched)
    flags = {side.flag: None for side in (base, patched) if side.flag is not None}
    return Comparison(
        verdict=Verdict.INCONCLUSIVE,
        reason="; ".join(side.problem for side in (base, patched) if side.problem),
        flags=tuple(flags),
        base=base.arm,
        patched=patched.arm,
        ratio=_plain_ratio(base, patched),
    )


def _plain_ratio(base: Side, patched: Side) -> float | None:
    if not (base.values.size and patched.values.size):
        return None
    return ratios(np.array([np.mean(np.log(patched.values)) - np.mean(np.log(base.values))]))[0]


def _judged(cells: Sequence[Cell], summaries: Summaries, alpha: float) -> list[Comparison]:
    estimates = exact.sharpened(cells, summaries, estimate(cells, summaries, alpha))
    boots = summaries.shape.boots
    flags = _flags(cells, estimates, few=min(boots) < _ENOUGH_BOOTS)
    columns = [ratios(log) for log in (estimates.difference, estimates.low, estimates.high)]
    columns += [column.tolist() for column in (estimates.p_value, estimates.low, estimates.high, estimates.visible)]
    columns += [estimates.means.tolist(), estimates.deviations.tolist()]
    base, patched = summaries.shape.arms
    columns.append(rank_tests(summaries.values[:, base], summaries.values[:, patched]))
    results = []
    for cell, flag, row in zip(cells, flags, zip(*columns, strict=True), strict=True):
        ratio, ratio_low, ratio_high, p_value, low, high, visible, means, deviations, p_rank = row
        verdict = verdict_of(cell, low, high)
        results.append(
            Comparison(
                verdict=verdict,
                reason=undecided(cell, ratio_low, ratio_high) if verdict is Verdict.INCONCLUSIVE else "",
                flags=flag,
                base=Arm(boots[0], means[0], deviations[0]),
                patched=Arm(boots[1], means[1], deviations[1]),
                ratio=ratio,
                ratio_low=ratio_low,
                ratio_high=ratio_high,
                p_value=p_value,
                p_rank=p_rank,
                mde=smallest_seen(min_effect=cell.min_effect, distance=visible),
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
    names = tuple(shown)
    table = np.stack(list(shown.values()), axis=1).tolist()
    return [tuple(name for name, shows in zip(names, row, strict=True) if shows) for row in table]


def _tiny(cells: Sequence[Cell], estimates: Estimates) -> np.ndarray:
    """Whether boots differ so little that how they differ is nobody's concern, (M,)."""
    limits = _TINY * np.array([cell.min_effect for cell in cells])
    return np.asarray(np.all(estimates.deviations <= limits[:, None] * estimates.means, axis=1))

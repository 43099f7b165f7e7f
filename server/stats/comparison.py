"""Base against patched: ratio with its interval, evidence, verdict. The formulas are told in docs/statistics.md."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from server.stats.boots import Floats, Side, read_side
from server.stats.cells import Arm, Cell, Comparison, Flag, Verdict
from server.stats.ranks import rank_test

ALPHA = 0.05
POWER = 0.80
# The first look of the sequential design: below it intervals are wide.
_ENOUGH_BOOTS = 4
# Two-sided level of the F test that tells arms of clearly different variance.
_UNEQUAL_LEVEL = 0.05
# A drift over the session is named from this level on, and from this many boots.
_TREND_LEVEL = 0.01
_TREND_BOOTS = 6
# Beyond these the exponential leaves the range of floats.
_LARGEST_LOG = 700.0


@dataclass(frozen=True)
class _Estimate:
    """Logarithm of the ratio, its standard error and the degrees of freedom of that."""

    difference: float
    error: float
    freedom: float
    flags: tuple[Flag, ...]


@dataclass(frozen=True)
class _Tested:
    """An estimate with its 95 % half width, the distance that is seen with 80 % power, and its p-value."""

    estimate: _Estimate
    half_width: float
    visible: float
    p_value: float


def compare(cells: Sequence[Cell], *, alpha: float = ALPHA) -> list[Comparison]:
    """One comparison for each cell, each judged on its own; `judge_family` then judges them together.

    `alpha` is the two-sided level: intervals hold 1 - alpha. Data never raise: what cannot be judged is
    `inconclusive` with a reason.
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha: {alpha!r} is no number between 0 and 1")
    sides = [(read_side("base", cell.base), read_side("patched", cell.patched)) for cell in cells]
    estimates = [
        None if base.problem or patched.problem else _estimate(cell, base, patched)
        for cell, (base, patched) in zip(cells, sides, strict=True)
    ]
    tests = iter(_test([estimate for estimate in estimates if estimate is not None], alpha))
    return [
        _unjudged(base, patched) if estimate is None else _judged(cell, base, patched, next(tests))
        for cell, (base, patched), estimate in zip(cells, sides, estimates, strict=True)
    ]


def _test(estimates: Sequence[_Estimate], alpha: float) -> list[_Tested]:
    freedom = np.array([estimate.freedom for estimate in estimates])
    error = np.array([estimate.error for estimate in estimates])
    difference = np.array([estimate.difference for estimate in estimates])
    # One call for all cells: the special functions are the slow part.
    half_width = special.stdtrit(freedom, 1 - alpha / 2) * error
    visible = half_width + special.stdtrit(freedom, POWER) * error
    p_value = 2 * special.stdtr(freedom, -np.abs(difference) / error)
    rows = zip(estimates, half_width.tolist(), visible.tolist(), p_value.tolist(), strict=True)
    return [_Tested(*row) for row in rows]


def _unjudged(base: Side, patched: Side) -> Comparison:
    flags = {side.flag: None for side in (base, patched) if side.flag is not None}
    ratio = None
    if base.values.size and patched.values.size:
        ratio = _exp(_log_ratio(base.values, patched.values))
    return Comparison(
        verdict=Verdict.INCONCLUSIVE,
        reason="; ".join(side.problem for side in (base, patched) if side.problem),
        flags=tuple(flags),
        base=base.arm,
        patched=patched.arm,
        ratio=ratio,
    )


def _judged(cell: Cell, base: Side, patched: Side, tested: _Tested) -> Comparison:
    difference = tested.estimate.difference
    low, high = difference - tested.half_width, difference + tested.half_width
    verdict = _verdict(cell, low, high)
    ratio_low, ratio_high = _exp(low), _exp(high)
    reason = ""
    if verdict is Verdict.INCONCLUSIVE:
        reason = (
            f"the interval {ratio_low:.3g} to {ratio_high:.3g} lies neither within "
            f"nor beyond a change of {100 * cell.min_effect:g} %"
        )
    return Comparison(
        verdict=verdict,
        reason=reason,
        flags=tested.estimate.flags,
        base=base.arm,
        patched=patched.arm,
        ratio=_exp(difference),
        ratio_low=ratio_low,
        ratio_high=ratio_high,
        p_value=tested.p_value,
        p_rank=rank_test(base.values, patched.values),
        mde=smallest_seen(min_effect=cell.min_effect, distance=tested.visible),
    )


def smallest_seen(*, min_effect: float, distance: float) -> float:
    """The minimum detectable effect: the change that this cell would have called with a probability of 80 %.

    A verdict needs the whole 95 % interval beyond `min_effect`. That happens with probability 0.80 when the true
    change lies (t[0.975] + t[0.80]) standard errors beyond it (Bloom, Evaluation Review 19, 1995: the same sum of two
    quantiles for a test against zero); `distance` is that product, on logs. It is never below `min_effect`, because
    smaller changes are called `unchanged` on purpose.
    """
    return math.expm1(min(math.log1p(min_effect) + distance, _LARGEST_LOG))


def _verdict(cell: Cell, low: float, high: float) -> Verdict:
    limit = math.log1p(cell.min_effect)
    if -limit < low and high < limit:
        return Verdict.UNCHANGED
    if low > limit:
        return Verdict.REGRESSED if cell.better == "lower" else Verdict.IMPROVED
    if high < -limit:
        return Verdict.IMPROVED if cell.better == "lower" else Verdict.REGRESSED
    return Verdict.INCONCLUSIVE


def _estimate(cell: Cell, base: Side, patched: Side) -> _Estimate:
    spread_base, spread_patched = _log_variance(base.values), _log_variance(patched.values)
    boots_base, boots_patched = len(base.values), len(patched.values)
    unequal = _unequal(spread_base, boots_base, spread_patched, boots_patched)
    if unequal:
        variance, freedom = _welch(spread_base, boots_base, spread_patched, boots_patched)
    else:
        variance, freedom = _pooled(spread_base, boots_base, spread_patched, boots_patched)
    floor = _grid_variance(base.arm, cell.resolution) + _grid_variance(patched.arm, cell.resolution)
    flags = {
        Flag.FEW_BOOTS: min(boots_base, boots_patched) < _ENOUGH_BOOTS,
        Flag.ZERO_SPREAD: spread_base == 0 or spread_patched == 0,
        Flag.UNEQUAL_SPREAD: unequal,
        Flag.TREND: _drifts(cell, base, patched),
    }
    return _Estimate(
        difference=_log_ratio(base.values, patched.values),
        error=math.sqrt(max(variance, floor)),
        freedom=freedom,
        flags=tuple(flag for flag, shows in flags.items() if shows),
    )


def _log_ratio(base: Floats, patched: Floats) -> float:
    # Measured from one common value, equal constants differ by exactly zero.
    origin = np.log(base[0])
    return float(np.mean(np.log(patched) - origin) - np.mean(np.log(base) - origin))


def _log_variance(values: Floats) -> float:
    return float(np.var(np.log(values) - np.log(values[0]), ddof=1))


def _pooled(a: float, boots_a: int, b: float, boots_b: int) -> tuple[float, float]:
    freedom = boots_a + boots_b - 2
    pooled = ((boots_a - 1) * a + (boots_b - 1) * b) / freedom
    return pooled * (1 / boots_a + 1 / boots_b), freedom


def _welch(a: float, boots_a: int, b: float, boots_b: int) -> tuple[float, float]:
    """Variance of the difference and Satterthwaite's degrees of freedom (Welch, Biometrika 34, 1947)."""
    share_a, share_b = a / boots_a, b / boots_b
    variance = share_a + share_b
    # Taken as fractions, tiny variances do not vanish when they are squared.
    part_a, part_b = share_a / variance, share_b / variance
    return variance, 1 / (part_a**2 / (boots_a - 1) + part_b**2 / (boots_b - 1))


def _unequal(a: float, boots_a: int, b: float, boots_b: int) -> bool:
    if a == b:
        return False
    if a == 0 or b == 0:
        return True
    below = float(special.fdtr(boots_a - 1, boots_b - 1, a / b))
    return min(below, 1 - below) < _UNEQUAL_LEVEL / 2


def _grid_variance(arm: Arm, resolution: float) -> float:
    """The least variance of an arm's mean, on logs: that of its rounding, which does not shrink with more boots.

    A value is the difference of two readings, each rounded to the resolution: step^2 / 12 for each (GUM, JCGM
    100:2008, F.2.2.1), step^2 / 6 together. When nothing else varies every boot is rounded alike, so the boots' mean
    has this error too. It makes one step of difference never significant, whatever the number of boots. Without a
    known resolution the step is the grid of floating-point numbers.
    """
    mean = arm.mean or 0.0
    log = math.log(mean)
    step = max(resolution / mean, math.ulp(mean) / mean, math.ulp(log))
    return min(step, _LARGEST_LOG) ** 2 / 6


def _drifts(cell: Cell, base: Side, patched: Side) -> bool:
    """Whether the boots' values, each around its arm's mean, follow the order in which the boots ran."""
    if cell.base_positions is None or cell.patched_positions is None:
        return False
    values, positions = [], []
    arms = ((base, cell.base, cell.base_positions), (patched, cell.patched, cell.patched_positions))
    for side, boots, places in arms:
        logs = np.log(side.values) - np.log(side.values[0])
        ran = np.array([place for place, kept in zip(places, boots, strict=True) if len(kept)], dtype=np.float64)
        values.append(logs - logs.mean())
        positions.append(ran - ran.mean())
    y, x = np.concatenate(values), np.concatenate(positions)
    scale = float(np.sqrt(np.sum(x**2) * np.sum(y**2)))
    if len(y) < _TREND_BOOTS or scale == 0:
        return False
    correlation = min(abs(float(np.sum(x * y))) / scale, 1 - 1e-12)
    # Two means and a slope were estimated.
    freedom = len(y) - 3
    t = correlation * math.sqrt(freedom / (1 - correlation**2))
    return bool(2 * special.stdtr(freedom, -t) < _TREND_LEVEL)


def _exp(log: float) -> float:
    return math.exp(max(-_LARGEST_LOG, min(log, _LARGEST_LOG)))

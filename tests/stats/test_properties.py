"""What must hold for all values, and error rates on simulated noise."""

import math
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.stats import Cell, CellComparison, StatisticalVerdict, compare, judge_family

Boots = list[list[float]]
OPPOSITE = {
    StatisticalVerdict.REGRESSED: StatisticalVerdict.IMPROVED,
    StatisticalVerdict.IMPROVED: StatisticalVerdict.REGRESSED,
    StatisticalVerdict.UNCHANGED: StatisticalVerdict.UNCHANGED,
    StatisticalVerdict.INCONCLUSIVE: StatisticalVerdict.INCONCLUSIVE,
}

# On a grid far above that of floating-point numbers, so that no example lives from their last digits.
values = st.integers(1000, 10**9).map(lambda whole: whole / 1000)
boots = st.lists(st.lists(values, min_size=1, max_size=5), min_size=2, max_size=6)
any_float = st.floats(allow_nan=True, allow_infinity=True)
any_boots = st.lists(st.lists(any_float, max_size=4), max_size=4)


def one(base: Boots, patched: Boots) -> CellComparison:
    return compare([Cell(base=base, patched=patched, better="lower", min_effect=0.01)])[0]


def figures(result: CellComparison) -> list[float]:
    return [
        math.nan if figure is None else figure
        for figure in (*(result.ratio, result.ratio_low, result.ratio_high, result.p_value, result.p_rank, result.mde),)
    ]


def close(found: list[float], expected: list[float]) -> bool:
    """Small figures are held to the same absolute distance: below a millionth only rounding is left of them."""
    return found == pytest.approx(expected, rel=1e-5, abs=1e-6, nan_ok=True)


def decided_by_rounding(result: CellComparison) -> bool:
    """Whether an end of the interval lies so near the minimum effect that the last digits choose the verdict."""
    ends = [end for end in (result.ratio_low, result.ratio_high) if end is not None]
    return any(abs(end / limit - 1) < 1e-6 for end in ends for limit in (1.01, 1 / 1.01))


@given(boots, boots, st.integers(-40, 40))
def test_scale_does_not_matter(base: Boots, patched: Boots, power: int) -> None:
    """By powers of two, so that rounding does not come between."""
    factor = 2.0**power
    scaled = one([[v * factor for v in boot] for boot in base], [[v * factor for v in boot] for boot in patched])
    plain = one(base, patched)
    assert close(figures(scaled), figures(plain))
    assert scaled.verdict == plain.verdict or decided_by_rounding(plain)


@given(boots, boots)
def test_swapping_the_arms_inverts_the_ratio_and_the_verdict(base: Boots, patched: Boots) -> None:
    plain, swapped = one(base, patched), one(patched, base)
    assert swapped.verdict == OPPOSITE[plain.verdict] or decided_by_rounding(plain)
    turned = [-math.log(ratio or 1) for ratio in (swapped.ratio, swapped.ratio_high, swapped.ratio_low)]
    assert close(turned, [math.log(ratio or 1) for ratio in (plain.ratio, plain.ratio_low, plain.ratio_high)])
    assert close(figures(swapped)[6:], figures(plain)[6:])


@given(boots, boots, st.randoms(use_true_random=False))
def test_order_of_runs_inside_a_boot_does_not_matter(base: Boots, patched: Boots, order: random.Random) -> None:
    shuffled = [order.sample(boot, len(boot)) for boot in base]
    assert one(shuffled, patched) == one(base, patched)


@given(st.lists(st.tuples(any_boots | boots, any_boots | boots), max_size=6))
def test_batch_equals_one_by_one(pairs: list[tuple[Boots, Boots]]) -> None:
    cells = [Cell(base=base, patched=patched, better="higher", min_effect=0.01) for base, patched in pairs]
    assert compare(cells) == [compare([cell])[0] for cell in cells]


@given(any_boots, any_boots, st.floats(0, 1e308), st.booleans())
def test_no_data_raise_or_warn_and_every_figure_is_finite(
    base: Boots, patched: Boots, resolution: float, exact: bool
) -> None:
    cell = Cell(base=base, patched=patched, better="higher", min_effect=0.01, resolution=resolution, exact=exact)
    result = judge_family(compare([cell]))[0]
    found = [*figures(result), result.base.mean or 0.0, result.patched.sd or 0.0]
    assert not any(math.isinf(figure) for figure in found)
    assert result.reason or result.verdict != StatisticalVerdict.INCONCLUSIVE
    assert result.mde is not None or result.verdict != StatisticalVerdict.UNCHANGED


@given(boots, boots)
def test_interval_holds_the_ratio_and_agrees_with_the_p_value(base: Boots, patched: Boots) -> None:
    result = one(base, patched)
    assert result.ratio is not None
    assert result.ratio_low is not None
    assert result.ratio_high is not None
    assert result.p_value is not None
    assert result.ratio_low <= result.ratio <= result.ratio_high
    near_one = min(abs(result.ratio_low - 1), abs(result.ratio_high - 1)) < 1e-9
    assert near_one or (result.p_value < 0.05) == (not result.ratio_low <= 1 <= result.ratio_high)


def _simulate(effect: float, *, seed: int, cells: int, boots: int) -> list[CellComparison]:
    """Boots that differ by 20 % and runs that differ by 20 % inside them, as on a busy host."""
    generator = np.random.default_rng(seed)

    def arm(level: float) -> list[np.ndarray]:
        between = generator.normal(0, 0.2, (cells, boots, 1))
        within = generator.normal(0, 0.2, (cells, boots, 7))
        return list(level * np.exp(between + within))

    pairs = zip(arm(10_000), arm(10_000 * effect), strict=True)
    return compare([Cell(list(b), list(p), better="lower", min_effect=0.01) for b, p in pairs])


@pytest.mark.parametrize("boots", [3, 4, 6])
def test_noise_of_20_percent_gives_false_alarms_at_the_nominal_rate(boots: int) -> None:
    results = _simulate(1.0, seed=boots, cells=3000, boots=boots)
    rejected = np.mean([result.p_value is not None and result.p_value < 0.05 for result in results])
    assert 0.035 < rejected < 0.06
    assert Counter(result.verdict for result in results)[StatisticalVerdict.UNCHANGED] == 0


@pytest.mark.parametrize("boots", [3, 4, 6])
def test_noise_of_20_percent_never_turns_a_large_regression_round(boots: int) -> None:
    verdicts = Counter(result.verdict for result in _simulate(1.71, seed=boots, cells=1000, boots=boots))
    assert set(verdicts) <= {StatisticalVerdict.REGRESSED, StatisticalVerdict.INCONCLUSIVE}
    assert verdicts[StatisticalVerdict.REGRESSED] > {3: 400, 4: 700, 6: 950}[boots]


def test_families_of_pure_noise_hardly_ever_report_a_change() -> None:
    results = _simulate(1.0, seed=5, cells=2000, boots=4)
    families = [judge_family(results[start : start + 20]) for start in range(0, 2000, 20)]
    alarmed = sum(any(c.verdict != StatisticalVerdict.INCONCLUSIVE for c in family) for family in families)
    assert alarmed <= 10

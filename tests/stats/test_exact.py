"""Counts that do not vary, such as instructions."""

import math
from typing import Any

import pytest

from server.stats import Cell, CellComparison, Flag, StatisticalVerdict, compare


def one(base: Any, patched: Any, **fields: Any) -> CellComparison:
    settings: dict[str, Any] = {"better": "lower", "min_effect": 0.01, "resolution": 1.0, "exact": True} | fields
    return compare([Cell(base, patched, **settings)])[0]


def test_a_difference_beyond_resolution_and_minimum_effect_is_certain() -> None:
    result = one([[5000.0, 5000.0]] * 2, [[5060.0, 5060.0]] * 2)
    assert result.verdict == StatisticalVerdict.REGRESSED
    assert result.ratio == pytest.approx(1.012)
    assert result.p_value is not None
    assert 0 < result.p_value < 1e-9


def test_a_real_difference_below_the_minimum_effect_is_unchanged() -> None:
    result = one([[5000.0]] * 2, [[5020.0]] * 2)
    assert result.verdict == StatisticalVerdict.UNCHANGED
    assert result.p_value is not None
    assert result.p_value < 1e-9


def test_one_step_of_the_resolution_is_no_difference() -> None:
    result = one([[10.0]] * 4, [[11.0]] * 4)
    assert (result.verdict, result.p_value) == (StatisticalVerdict.INCONCLUSIVE, 1.0)


def test_equal_counts_are_unchanged_and_would_have_shown_little_more_than_the_minimum_effect() -> None:
    result = one([[2168.0] * 3] * 2, [[2168.0] * 3] * 2)
    assert (result.verdict, result.ratio, result.p_value) == (StatisticalVerdict.UNCHANGED, 1.0, 1.0)
    assert result.mde is not None
    assert 0.01 < result.mde < 0.0115


def test_direction_and_swapped_arms_agree() -> None:
    assert one([[100.0]] * 2, [[150.0]] * 2, better="higher").verdict == StatisticalVerdict.IMPROVED
    assert one([[150.0]] * 2, [[100.0]] * 2, better="higher").verdict == StatisticalVerdict.REGRESSED


def test_values_one_step_apart_still_count_as_equal() -> None:
    assert Flag.EXACT_VARIES not in one([[1000.0, 1001.0]] * 2, [[1200.0, 1200.0]] * 2).flags


def test_exact_metric_that_varies_is_judged_like_any_other_and_says_so() -> None:
    base, patched = [[1000.0], [1100.0], [1050.0]], [[1080.0], [1160.0], [1010.0]]
    varies, plain = one(base, patched), one(base, patched, exact=False)
    assert Flag.EXACT_VARIES in varies.flags
    assert (varies.verdict, varies.p_value, varies.ratio_low) == (plain.verdict, plain.p_value, plain.ratio_low)


def test_steps_larger_than_the_values_give_a_wide_but_finite_interval() -> None:
    result = one([[1.0]] * 2, [[1.0]] * 2, resolution=5.0)
    assert result.verdict == StatisticalVerdict.INCONCLUSIVE
    assert result.ratio_low is not None
    assert result.ratio_high is not None
    assert 0 < result.ratio_low < 1 < result.ratio_high < float("inf")


@pytest.mark.parametrize("change", [0.0, 1.0, 2.0, 2.5, 3.0])
@pytest.mark.parametrize("fields", [{}, {"resolution": 0.1}])
def test_the_p_value_follows_from_the_interval(change: float, fields: dict[str, float]) -> None:
    step = fields.get("resolution", 1.0)
    for base, patched in ((1000 * step, (1000 + change) * step), ((1000 + change) * step, 1000 * step)):
        result = one([[base]] * 2, [[patched]] * 2, **fields)
        assert result.p_value is not None
        outside = not (result.ratio_low or 9) <= 1 <= (result.ratio_high or 0)
        assert outside == (result.p_value < 0.05) == (change > 2)


def test_values_a_step_apart_in_one_arm_are_not_certain_against_one_step_more() -> None:
    assert one([[1000.0, 1001.0]] * 2, [[1002.0, 1002.0]] * 2).p_value == 1.0


@pytest.mark.parametrize(("base", "patched"), [(1e-300, 1e300), (5e-324, 1.7e308), (1e-25, 3e-25), (1e-25, 1.0)])
@pytest.mark.parametrize("resolution", [0.0, 1.0, 1e300])
def test_extreme_counts_give_finite_figures(base: float, patched: float, resolution: float) -> None:
    for first, second in ((base, patched), (patched, base)):
        result = one([[first]] * 2, [[second]] * 2, resolution=resolution)
        figures = (result.ratio, result.ratio_low, result.ratio_high, result.p_value, result.mde)
        assert all(figure is not None and math.isfinite(figure) for figure in figures)

"""Known values, zero spread and bad input."""

import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from scipy import stats as scipy_stats

from server.stats import Cell, CellComparison, Flag, StatisticalVerdict, compare

QUIET_BASE = [[100.0], [101.0], [99.5], [100.4], [100.9]]
QUIET_PATCHED = [[104.0], [105.2], [104.4], [103.9], [105.0]]


def one(base: Any, patched: Any, *, better: Any = "lower", min_effect: float = 0.01, **fields: Any) -> CellComparison:
    return compare([Cell(base=base, patched=patched, better=better, min_effect=min_effect, **fields)])[0]


def test_one_run_in_each_boot_gives_nearly_students_t_on_the_boots_logs() -> None:
    result = one(QUIET_BASE, QUIET_PATCHED)
    expected = scipy_stats.ttest_ind(np.log(np.ravel(QUIET_PATCHED)), np.log(np.ravel(QUIET_BASE)))
    interval = expected.confidence_interval(0.95)
    assert result.p_value == pytest.approx(expected.pvalue, rel=0.25)
    assert result.ratio_low == pytest.approx(math.exp(interval.low), abs=5e-4)
    assert result.ratio_high == pytest.approx(math.exp(interval.high), abs=5e-4)
    geometric = scipy_stats.gmean(np.ravel(QUIET_PATCHED)) / scipy_stats.gmean(np.ravel(QUIET_BASE))
    assert result.ratio == pytest.approx(geometric, abs=3e-4)
    assert result.verdict == StatisticalVerdict.REGRESSED


def test_arms_of_clearly_different_spread_are_compared_nearly_by_welch() -> None:
    noisy = [[90.0], [118.0], [131.0], [80.0], [140.0]]
    result = one(QUIET_BASE, noisy)
    expected = scipy_stats.ttest_ind(np.log(np.ravel(noisy)), np.log(np.ravel(QUIET_BASE)), equal_var=False)
    assert result.p_value == pytest.approx(expected.pvalue, rel=0.05)
    assert result.ratio_high == pytest.approx(math.exp(expected.confidence_interval(0.95).high), rel=0.02)
    assert Flag.UNEQUAL_SPREAD in result.flags


def test_equal_values_of_one_boot_are_not_independent_evidence() -> None:
    repeated = one([boot * 50 for boot in QUIET_BASE], [boot * 50 for boot in QUIET_PATCHED])
    assert repeated.p_value == pytest.approx(one(QUIET_BASE, QUIET_PATCHED).p_value, rel=0.25)


def test_rank_test_stands_beside_the_verdict() -> None:
    assert one(QUIET_BASE, QUIET_PATCHED).p_rank == pytest.approx(2 / 252)


def test_boots_in_two_groups_are_named() -> None:
    base = [[100.0], [100.3], [106.0], [99.8], [106.2], [100.1], [100.2]]
    patched = [[100.2], [106.1], [99.9], [100.4], [105.8], [100.0], [106.3]]
    assert Flag.BIMODAL in one(base, patched).flags


def test_the_name_of_a_cell_stands_in_its_errors() -> None:
    with pytest.raises(ValueError, match="host-1/copy: min_effect"):
        Cell([], [], "lower", -1.0, name="host-1/copy")


def test_means_are_arithmetic_and_in_the_metrics_unit() -> None:
    result = one(QUIET_BASE, QUIET_PATCHED)
    assert result.base.mean == pytest.approx(np.mean(QUIET_BASE))
    assert result.patched.sd == pytest.approx(np.std(QUIET_PATCHED, ddof=1))
    assert (result.base.boots, result.patched.boots) == (5, 5)


def test_direction_comes_from_better() -> None:
    assert one(QUIET_BASE, QUIET_PATCHED, better="higher").verdict == StatisticalVerdict.IMPROVED
    assert one(QUIET_PATCHED, QUIET_BASE, better="higher").verdict == StatisticalVerdict.REGRESSED
    assert one(QUIET_PATCHED, QUIET_BASE, better="lower").verdict == StatisticalVerdict.IMPROVED


def test_real_change_below_the_minimum_effect_is_unchanged() -> None:
    slightly = [[value * 1.004 for value in boot] for boot in [[100.0], [100.01], [99.99], [100.0]]]
    result = one([[100.0], [100.01], [99.99], [100.0]], slightly)
    assert result.p_value is not None
    assert result.p_value < 0.001
    assert result.verdict == StatisticalVerdict.UNCHANGED


def test_change_that_straddles_the_minimum_effect_is_inconclusive_with_its_interval() -> None:
    result = one(QUIET_BASE, [[boot[0] * 1.01] for boot in QUIET_BASE])
    assert result.verdict == StatisticalVerdict.INCONCLUSIVE
    assert "neither within nor beyond a change of 1 %" in result.reason


def test_mde_is_the_change_called_with_80_percent_power() -> None:
    """Simulated at exactly the MDE that the true spread gives, the share of `regressed` verdicts is the power."""
    spread, boots, random = 0.01, 8, np.random.default_rng(11)
    freedom, error = 2 * boots - 2, spread * math.sqrt(2 / boots)
    distance = (scipy_stats.t.ppf(0.975, freedom) + scipy_stats.t.ppf(0.80, freedom)) * error
    effect = 1.01 * math.exp(distance)
    base = np.exp(random.normal(0, spread, (2000, boots, 1)))
    patched = effect * np.exp(random.normal(0, spread, (2000, boots, 1)))
    cells = [Cell(b, p, better="lower", min_effect=0.01) for b, p in zip(list(base), list(patched), strict=True)]
    results = compare(cells)
    called = np.mean([result.verdict == StatisticalVerdict.REGRESSED for result in results])
    assert called == pytest.approx(0.80, abs=0.03)
    assert np.median([result.mde or 0 for result in results]) == pytest.approx(effect - 1, rel=0.05)


# --- zero spread ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("boots", [2, 3, 4, 6, 16])
def test_equal_constants_are_unchanged_and_say_what_would_have_been_seen(boots: int) -> None:
    result = one([[2168.0] * 5] * boots, [[2168.0] * 5] * boots, resolution=1.0)
    assert result.verdict == StatisticalVerdict.UNCHANGED
    assert (result.ratio, result.p_value, result.p_rank) == (1.0, 1.0, 1.0)
    assert Flag.ZERO_SPREAD in result.flags
    assert result.mde is not None
    assert 0.01 <= result.mde < 0.0125


@pytest.mark.parametrize("boots", [2, 3, 4, 6, 16])
def test_large_difference_of_constants_is_certain(boots: int) -> None:
    result = one([[5762.0] * 5] * boots, [[9871.0] * 5] * boots, resolution=1.0)
    assert result.verdict == StatisticalVerdict.REGRESSED
    assert result.p_value is not None
    assert result.p_value < 1e-6
    assert result.ratio == pytest.approx(9871 / 5762)


@pytest.mark.parametrize("boots", [2, 4, 8, 16, 64])
def test_one_step_of_the_resolution_is_never_significant(boots: int) -> None:
    """Also where one step is ten percent, and however many boots repeat it."""
    result = one([[10.0]] * boots, [[11.0]] * boots, resolution=1.0)
    assert result.verdict == StatisticalVerdict.INCONCLUSIVE
    assert result.p_value is not None
    assert result.p_value > 0.05


def test_many_steps_of_the_resolution_are_significant() -> None:
    assert one([[10.0]] * 4, [[16.0]] * 4, resolution=1.0).verdict == StatisticalVerdict.REGRESSED


def test_equal_constants_of_unknown_resolution_are_judged_on_the_grid_of_floats() -> None:
    equal = one([[0.3]] * 2, [[0.3]] * 2)
    assert equal.verdict == StatisticalVerdict.UNCHANGED
    assert equal.mde == pytest.approx(0.01, rel=1e-9)
    assert equal.p_value == 1.0


def test_one_constant_arm_leaves_the_uncertainty_of_the_other() -> None:
    result = one([[100.0]] * 4, [[80.0], [130.0], [95.0], [120.0]], resolution=0.01)
    assert result.verdict == StatisticalVerdict.INCONCLUSIVE
    assert {Flag.ZERO_SPREAD, Flag.UNEQUAL_SPREAD} <= set(result.flags)


def test_measured_spread_above_the_resolution_is_not_widened() -> None:
    assert one(QUIET_BASE, QUIET_PATCHED, resolution=0.1) == one(QUIET_BASE, QUIET_PATCHED)


# --- bad input ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad", [[], [[]], [[1.0]], [[math.nan], [1.0]], [[math.inf], [1.0]], [[0.0], [1.0]], [[-3.0], [1.0]]]
)
def test_bad_arm_gives_an_inconclusive_result_with_a_reason(bad: list[list[float]]) -> None:
    for result, name in ((one(bad, QUIET_PATCHED), "base"), (one(QUIET_BASE, bad), "patched")):
        assert result.verdict == StatisticalVerdict.INCONCLUSIVE
        assert result.reason.startswith(f"{name} kernel: ")
        assert result.flags
        assert (result.p_value, result.ratio_low, result.mde) == (None, None, None)


def test_both_bad_arms_are_named() -> None:
    assert one([], [[0.0]]).reason == "base kernel: no values; patched kernel: 1 of 1 values are zero or negative"


def test_one_boot_still_has_a_mean_and_a_ratio() -> None:
    result = one([[100.0]], [[150.0], [150.0]])
    assert (result.base.mean, result.base.sd) == (100.0, None)
    assert result.ratio == pytest.approx(1.5)


@pytest.mark.parametrize(("base", "patched"), [(1e-300, 1e300), (1e300, 1e-300), (5e-324, 1.7e308), (1e300, 1e300)])
@pytest.mark.parametrize("resolution", [0.0, 1.0, 1e300])
def test_extreme_values_give_finite_figures(base: float, patched: float, resolution: float) -> None:
    result = one([[base], [base]], [[patched], [patched]], resolution=resolution)
    figures = (result.ratio, result.ratio_low, result.ratio_high, result.p_value, result.p_rank, result.mde)
    assert all(figure is not None and math.isfinite(figure) for figure in figures)


def test_few_boots_are_flagged_but_judged() -> None:
    assert Flag.FEW_BOOTS in one(QUIET_BASE[:2], QUIET_PATCHED[:2]).flags
    assert Flag.FEW_BOOTS not in one(QUIET_BASE, QUIET_PATCHED).flags


def test_drift_over_the_session_is_flagged() -> None:
    positions: dict[str, Any] = {"base_positions": [0, 3, 4, 7], "patched_positions": [1, 2, 5, 6]}
    drifting = one([[100 + 2.0 * p] for p in (0, 3, 4, 7)], [[100.5 + 2.0 * p] for p in (1, 2, 5, 6)], **positions)
    steady = one([[100.0], [101.0], [100.5], [99.0]], [[100.2], [100.0], [100.9], [99.4]], **positions)
    assert Flag.TREND in drifting.flags
    assert Flag.TREND not in steady.flags


@pytest.mark.parametrize(
    "misuse",
    [
        {"better": "faster"},
        {"min_effect": -0.01},
        {"min_effect": math.nan},
        {"resolution": math.inf},
        {"base_positions": [0, 1, 2, 3, 4]},
        {"base_positions": [0], "patched_positions": [1, 2, 3, 4, 5]},
    ],
)
def test_misuse_is_refused(misuse: dict[str, Any]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (each misuse has its own words)
        one(QUIET_BASE, QUIET_PATCHED, **misuse)


def test_no_cells_give_no_comparisons() -> None:
    assert compare([]) == []


def test_importing_the_statistics_imports_no_django() -> None:
    code = "import sys, server.stats; sys.exit(any(name.split('.')[0] in ('django', 'celery') for name in sys.modules))"
    subprocess.run([sys.executable, "-c", code], check=True)

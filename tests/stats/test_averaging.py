"""What the average over error structures does to cells of known making."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats as scipy_stats

from server.stats import Cell, CellComparison, Flag, compare


def cells(count: int, *, seed: int, boot: float = 0.0, run: float = 0.02, boots: int = 7, runs: int = 3) -> list[Cell]:
    """Interleaved boots of one kernel against itself."""
    random = np.random.default_rng(seed)

    def arm() -> np.ndarray:
        return 100 * np.exp(random.normal(0, boot, (boots, 1)) + random.normal(0, run, (boots, runs)))

    even, odd = list(range(0, 2 * boots, 2)), list(range(1, 2 * boots, 2))
    return [Cell(list(arm()), list(arm()), "lower", 0.01, 0.0, even, odd) for _ in range(count)]


def width(result: CellComparison) -> float:
    assert result.ratio_low is not None
    assert result.ratio_high is not None
    return result.ratio_high - result.ratio_low


def widths(results: list[CellComparison]) -> float:
    return float(np.median([width(result) for result in results]))


def t_widths(of: list[Cell]) -> float:
    """Median width of Welch's interval on the boots' mean logarithms."""
    found = []
    for cell in of:
        base, patched = (np.log(np.array(arm)).mean(axis=1) for arm in (cell.base, cell.patched))
        interval = scipy_stats.ttest_ind(patched, base, equal_var=False).confidence_interval()
        found.append(np.exp(interval.high) - np.exp(interval.low))
    return float(np.median(found))


def covered(results: list[CellComparison]) -> float:
    return float(np.mean([(r.ratio_low or 0) <= 1 <= (r.ratio_high or 0) for r in results]))


def shifted(cell: Cell, logs: np.ndarray) -> Cell:
    """The cell with its boots multiplied, by their place in the session."""
    base, patched = (
        [list(np.array(boot) * np.exp(logs[place])) for boot, place in zip(arm, places or (), strict=True)]
        for arm, places in ((cell.base, cell.base_positions), (cell.patched, cell.patched_positions))
    )
    return replace(cell, base=base, patched=patched)


def test_independent_runs_make_the_interval_narrower_than_boots_alone() -> None:
    alike = cells(300, seed=1, boots=3, runs=5)
    assert widths(compare(alike)) < 0.95 * t_widths(alike)


@pytest.mark.parametrize(("boot", "run"), [(0.0, 0.02), (0.02, 0.02), (0.03, 0.012)])
def test_interval_holds_the_truth_whatever_the_correlation_inside_boots(boot: float, run: float) -> None:
    assert 0.93 < covered(compare(cells(1500, seed=2, boot=boot, run=run, boots=5))) < 0.975


def test_runs_that_agree_with_their_boot_are_no_independent_evidence() -> None:
    correlated = cells(300, seed=3, boot=0.03, run=1e-5)
    assert widths(compare(correlated)) == pytest.approx(t_widths(correlated), rel=0.1)


def test_one_slow_boot_hardly_widens_the_interval_and_is_named() -> None:
    plain = cells(200, seed=4)
    slow = np.zeros(14)
    slow[5] = 0.3
    disturbed = [shifted(cell, slow) for cell in plain]
    results = compare(disturbed)
    assert widths(results) < 1.3 * widths(compare(plain))
    assert widths(results) < 0.4 * t_widths(disturbed)
    assert np.mean([Flag.OUTLYING_BOOT in result.flags for result in results]) > 0.95


def test_two_slow_boots_of_eight_hardly_widen_the_interval() -> None:
    plain = cells(200, seed=5, boots=8)
    slow = np.zeros(16)
    slow[[2, 9]] = 0.3, 0.2
    assert widths(compare([shifted(cell, slow) for cell in plain])) < 1.4 * widths(compare(plain))


def test_two_fast_boots_of_five_are_a_second_mode_rather_than_outliers() -> None:
    random = np.random.default_rng(13)
    modes = np.array([0.1, 0.1, 0.1, 0.0, 0.0])[:, None]
    base = np.exp(modes + random.normal(0, 0.002, (5, 3)))
    patched = np.exp(random.normal(0, 0.002, (5, 3)))
    result = compare([Cell(list(base), list(patched), "lower", 0.01)])[0]
    assert result.p_value is not None
    assert result.p_value > 0.01


def test_quiet_boots_are_seldom_called_outlying_or_drifting() -> None:
    flags = [flag for result in compare(cells(1000, seed=6, boot=0.01)) for flag in result.flags]
    assert flags.count(Flag.OUTLYING_BOOT) < 80
    assert flags.count(Flag.TREND) < 80
    assert flags.count(Flag.UNEQUAL_SPREAD) < 80


@pytest.mark.parametrize("drift", ["line", "walk"])
def test_drift_of_the_machine_is_taken_out_and_named(drift: str) -> None:
    random = np.random.default_rng(7)
    plain = cells(200, seed=7, run=0.01)
    lines = np.tile(np.linspace(0, 0.2, 14), (200, 1))
    walks = np.cumsum(random.normal(0, 0.02, (200, 14)), axis=1)
    drifting = [shifted(cell, logs) for cell, logs in zip(plain, lines if drift == "line" else walks, strict=True)]
    placed = compare(drifting)
    blind = compare([replace(cell, base_positions=None, patched_positions=None) for cell in drifting])
    assert widths(placed) < 0.75 * widths(blind)
    assert np.mean([Flag.TREND in result.flags for result in placed]) > 0.5
    assert not any(Flag.TREND in result.flags for result in blind)


def test_arms_of_clearly_different_spread_are_named_and_covered() -> None:
    quiet, noisy = cells(600, seed=8, boot=0.005, run=0.005), cells(600, seed=9, boot=0.04, run=0.04)
    mixed = [replace(cell, patched=other.patched) for cell, other in zip(quiet, noisy, strict=True)]
    results = compare(mixed)
    assert 0.93 < covered(results) < 0.975
    assert np.mean([Flag.UNEQUAL_SPREAD in result.flags for result in results]) > 0.95


@pytest.mark.parametrize("alpha", [0.5, 0.05, 0.005, 0.0005])
def test_interval_leaves_out_one_exactly_where_the_p_value_is_below_the_level(alpha: float) -> None:
    for result in compare(cells(400, seed=10, boot=0.01, boots=4), alpha=alpha):
        assert result.p_value is not None
        outside = not (result.ratio_low or 0) <= 1 <= (result.ratio_high or 0)
        assert outside == (result.p_value < alpha)


def test_smaller_levels_give_wider_intervals_that_hold_the_narrower() -> None:
    pairs = cells(100, seed=11, boot=0.01)
    wide, narrow = compare(pairs, alpha=0.0005), compare(pairs, alpha=0.05)
    for outer, inner in zip(wide, narrow, strict=True):
        assert (outer.ratio_low or 9) < (inner.ratio_low or 0)
        assert (outer.ratio_high or 0) > (inner.ratio_high or 9)
        assert outer.p_value == pytest.approx(inner.p_value)


@pytest.mark.parametrize("boots", [2, 3, 5])
def test_runs_that_differ_by_rounding_only_make_the_interval_no_narrower_than_students(boots: int) -> None:
    random = np.random.default_rng(12)
    base, patched = (np.round(1000 * np.exp(random.normal(0, 0.003, boots)), 1) for _ in range(2))
    cell = Cell([[value] * 5 for value in base], [[value] * 5 for value in patched], "lower", 0.01, resolution=0.1)
    result = compare([cell])[0]
    variance = (np.log(base).var(ddof=1) + np.log(patched).var(ddof=1)) / boots
    half = scipy_stats.t.ppf(0.975, 2 * boots - 2) * np.sqrt(variance)
    assert width(result) > 0.85 * 2 * half

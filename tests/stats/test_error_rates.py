"""False positives, coverage and width on simulated boots: heavy tails, slow boots, drift, two modes, unequal arms."""

import numpy as np
import pytest
from scipy import stats as scipy_stats

from server.stats import Cell, CellComparison, compare

TRAITS = ("plain", "heavy", "slow boots", "drift", "modes", "unequal")
CORRELATIONS = (0.0, 0.3, 0.6, 0.85)
DESIGNS = [(3, 5), (5, 3), (7, 3), (10, 5)]


def simulated(trait: str, boots: int, runs: int, *, count: int, seed: int, effect: float = 0.0) -> list[Cell]:
    """Interleaved boots whose values have a standard deviation of 2 %, a share of it between boots."""
    random = np.random.default_rng(seed)
    share = np.tile(CORRELATIONS, count // len(CORRELATIONS))[:, None, None]
    noise = random.standard_t(3, (count, 2 * boots, runs)) / np.sqrt(3) if trait == "heavy" else None
    if noise is None:
        noise = random.normal(0, 1, (count, 2 * boots, runs))
    logs = 0.02 * (np.sqrt(share) * random.normal(0, 1, (count, 2 * boots, 1)) + np.sqrt(1 - share) * noise)
    if trait == "slow boots":
        logs += random.uniform(0.05, 0.3, (count, 2 * boots, 1)) * (random.random((count, 2 * boots, 1)) < 0.08)
    if trait == "drift":
        logs += np.cumsum(random.normal(0, 0.008, (count, 2 * boots, 1)), axis=1)
    if trait == "modes":
        logs += random.uniform(0.03, 0.1, (count, 1, 1)) * (random.random((count, 2 * boots, 1)) < 0.3)
    if trait == "unequal":
        logs[:, 1::2] *= 3
    logs[:, 1::2] += effect
    even, odd = list(range(0, 2 * boots, 2)), list(range(1, 2 * boots, 2))
    values = np.exp(logs).tolist()
    return [Cell(cell[::2], cell[1::2], "lower", 0.01, 0.0, even, odd) for cell in values]


def rejected(results: list[CellComparison]) -> float:
    return float(np.mean([result.p_value is not None and result.p_value < 0.05 for result in results]))


@pytest.mark.parametrize(("boots", "runs"), DESIGNS)
def test_false_positives_are_five_in_a_hundred_in_every_design(boots: int, runs: int) -> None:
    cells = [c for trait in TRAITS for c in simulated(trait, boots, runs, count=800, seed=100 * boots + runs)]
    assert 0.033 < rejected(compare(cells)) < 0.06


@pytest.mark.parametrize("trait", TRAITS)
def test_no_kind_of_noise_gives_many_false_positives(trait: str) -> None:
    results = [r for boots, runs in DESIGNS for r in compare(simulated(trait, boots, runs, count=400, seed=boots))]
    assert rejected(results) < 0.07


def test_intervals_hold_the_true_change_and_are_narrower_than_those_of_boots_alone() -> None:
    cells = [c for trait in TRAITS for c in simulated(trait, 7, 3, count=400, seed=3, effect=0.04)]
    results = compare(cells)
    low = np.array([result.ratio_low or 0 for result in results])
    high = np.array([result.ratio_high or 0 for result in results])
    assert 0.94 < np.mean((low <= np.exp(0.04)) & (high >= np.exp(0.04))) < 0.965
    base, patched = (np.log([getattr(cell, arm) for cell in cells]).mean(axis=2) for arm in ("base", "patched"))
    interval = scipy_stats.ttest_ind(patched, base, axis=1, equal_var=False).confidence_interval()
    assert np.median(high - low) < 0.93 * np.median(np.exp(interval.high) - np.exp(interval.low))


def test_power_is_above_that_of_boots_alone() -> None:
    cells = [c for trait in TRAITS for c in simulated(trait, 7, 3, count=400, seed=4, effect=0.03)]
    base, patched = (np.log([getattr(cell, arm) for cell in cells]).mean(axis=2) for arm in ("base", "patched"))
    alone = np.mean(scipy_stats.ttest_ind(patched, base, axis=1, equal_var=False).pvalue < 0.05)
    assert rejected(compare(cells)) > alone + 0.04

"""Machines that run at one of two levels, drawn anew in each boot."""

import numpy as np
import pytest

from server.stats import Cell, CellComparison, Flag, StatisticalVerdict, compare

LEVEL = 1.08


def cells(slow: tuple[int, int], boots: int = 7, *, effect: float = 1.0, count: int = 50, seed: int = 1) -> list[Cell]:
    """Of each arm so many boots lie 8 % higher; the other noise is 0.7 %."""
    random = np.random.default_rng(seed)
    values = 100 * np.exp(random.normal(0, 0.004, (count, 2, boots, 1)) + random.normal(0, 0.006, (count, 2, boots, 3)))
    for arm, number in enumerate(slow):
        values[:, arm, :number] *= LEVEL
    values[:, 1] *= effect
    positions = list(range(0, 2 * boots, 2)), list(range(1, 2 * boots, 2))
    return [Cell(base.tolist(), patched.tolist(), "lower", 0.01, 0.0, *positions) for base, patched in values]


def share(verdict: StatisticalVerdict, results: list[CellComparison]) -> float:
    return float(np.mean([result.verdict is verdict for result in results]))


def test_a_change_is_found_below_the_distance_of_the_levels() -> None:
    assert share(StatisticalVerdict.REGRESSED, compare(cells((2, 3), effect=1.03))) > 0.9


def test_levels_are_not_taken_for_a_change() -> None:
    results = compare(cells((2, 4)))
    assert share(StatisticalVerdict.REGRESSED, results) == 0
    assert all(Flag.BIMODAL in result.flags for result in results)
    assert np.median([abs((result.ratio or 0) - 1) for result in results]) < 0.01


def test_a_patch_that_makes_the_slow_level_common_has_regressed() -> None:
    assert share(StatisticalVerdict.REGRESSED, compare(cells((2, 12), boots=16))) > 0.9
    assert share(StatisticalVerdict.REGRESSED, compare(cells((0, 7)))) == 1


def test_one_boot_apart_is_no_level() -> None:
    results = compare(cells((1, 0)))
    assert not any(Flag.BIMODAL in result.flags for result in results)
    assert all(Flag.OUTLYING_BOOT in result.flags for result in results)


def test_normal_boots_are_seldom_taken_for_levels() -> None:
    results = compare(cells((0, 0), boots=6, count=1000))
    assert np.mean([Flag.BIMODAL in result.flags for result in results]) < 0.02


def test_boots_of_different_numbers_of_runs_have_levels_too() -> None:
    ragged = [
        Cell([boot[: 1 + place % 3] for place, boot in enumerate(cell.base)], cell.patched, "lower", 0.01)
        for cell in cells((3, 3), effect=1.04)
    ]
    results = compare(ragged)
    assert share(StatisticalVerdict.REGRESSED, results) > 0.8
    assert results[7] == compare([ragged[7]])[0]


@pytest.mark.parametrize("boots", [4, 24, 25])
def test_a_cell_with_levels_does_not_depend_on_others_in_the_batch(boots: int) -> None:
    mixed = [*cells((2, 2), boots, count=3), *cells((0, 0), boots, count=3, seed=2)]
    assert compare(mixed) == [result for cell in mixed for result in compare([cell])]

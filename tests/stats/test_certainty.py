"""What may be taken for certain: neither boots that agree by chance, nor values that are rounded alike."""

from collections.abc import Callable

import numpy as np
import pytest

from server.stats import Cell, CellComparison, Flag, StatisticalVerdict, compare


def one(base: list[list[float]], patched: list[list[float]], resolution: float = 0.0) -> CellComparison:
    return compare([Cell(base, patched, "lower", 0.01, resolution)])[0]


def p_values(arm: Callable[[np.random.Generator], np.ndarray], *, cells: int, seed: int) -> np.ndarray:
    """Of kernels compared with themselves."""
    random = np.random.default_rng(seed)
    results = compare([Cell(list(arm(random)), list(arm(random)), "lower", 0.01) for _ in range(cells)])
    return np.array([result.p_value for result in results])


@pytest.mark.parametrize(("boots", "runs"), [(3, 3), (7, 3), (3, 5), (10, 5)])
@pytest.mark.parametrize("share", [0.15, 0.35])
def test_runs_with_two_modes_give_no_false_alarms(boots: int, runs: int, share: float) -> None:
    def arm(random: np.random.Generator) -> np.ndarray:
        slow = random.random((boots, runs)) < share
        return 100 * np.exp(0.03 * slow + random.normal(0, 0.0005, (boots, runs)))

    assert np.mean(p_values(arm, cells=1000, seed=21) < 0.05) < 0.075


def test_boots_that_agree_do_not_make_runs_that_vary_certain() -> None:
    result = one([[90.0, 100.0, 110.0]] * 4, [[94.0, 104.0, 114.0]] * 4)
    assert result.verdict == StatisticalVerdict.INCONCLUSIVE
    assert result.p_value is not None
    assert result.p_value > 0.01
    assert Flag.ZERO_SPREAD not in result.flags


def test_boots_that_agree_far_better_than_their_runs_are_not_believed() -> None:
    base = [[90.0 + part, 100.0, 110.0] for part in (0.0, 0.001, 0.002, 0.003)]
    patched = [[94.0 + part, 104.0, 114.0] for part in (0.0, 0.001, 0.002, 0.003)]
    result = one(base, patched)
    assert result.p_value is not None
    assert result.p_value > 0.01


@pytest.mark.parametrize(("boots", "runs"), [(2, 1), (2, 3), (4, 3)])
@pytest.mark.parametrize("step", [0.5, 1.0, 2.0])
def test_rounded_values_of_unknown_resolution_are_never_certain_by_chance(boots: int, runs: int, step: float) -> None:
    def arm(random: np.random.Generator) -> np.ndarray:
        return np.round(random.normal(100, 1, (boots, runs)) / step) * step

    p = p_values(arm, cells=1000, seed=22)
    assert np.mean(p < 0.05) < 0.07
    assert p.min() > 1e-5


@pytest.mark.parametrize("boots", [2, 4, 16])
def test_constants_near_each_other_are_undecided_without_a_resolution(boots: int) -> None:
    result = one([[1.2]] * boots, [[1.3]] * boots)
    assert result.verdict == StatisticalVerdict.INCONCLUSIVE
    assert result.p_value is not None
    assert result.p_value > 0.05


@pytest.mark.parametrize("boots", [2, 4, 16])
@pytest.mark.parametrize("scale", [1e-9, 1.0, 3e7])
def test_a_constant_that_doubles_is_a_change_without_a_resolution(boots: int, scale: float) -> None:
    assert one([[scale] * 3] * boots, [[2 * scale] * 3] * boots).verdict == StatisticalVerdict.REGRESSED


def test_with_a_resolution_constants_near_each_other_are_a_change() -> None:
    result = one([[1.2]] * 2, [[1.3]] * 2, resolution=0.001)
    assert result.verdict == StatisticalVerdict.REGRESSED
    assert result.p_value is not None
    assert result.p_value < 1e-3


def test_equal_constants_are_unchanged_without_a_resolution() -> None:
    assert one([[0.3]] * 2, [[0.3]] * 2).verdict == StatisticalVerdict.UNCHANGED


def test_where_values_repeat_their_smallest_distance_is_taken_for_the_resolution() -> None:
    rounded = [[100.0], [100.0], [100.0]], [[103.0], [104.0], [103.0]]
    assert one(*rounded) == one(*rounded, resolution=1.0) != one(*rounded, resolution=1e-6)

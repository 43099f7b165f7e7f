"""Runs per boot from the variances of boots and runs."""

import math

import numpy as np
import pytest

from server.stats import Cell
from server.stats.repetitions import (
    Basis,
    Costs,
    Limits,
    Repetitions,
    Variances,
    cautious,
    runs_per_boot,
    split_variance,
)
from server.stats.sequential import next_step

COSTS = Costs(boot=90, run=10)


def cell(base: list[list[float]], patched: list[list[float]]) -> Cell:
    return Cell(base, patched, better="lower", min_effect=0.01)


def simulated(boot_sd: float, run_sd: float, *, boots: int = 400, runs: int = 4, seed: int = 1) -> Cell:
    generator = np.random.default_rng(seed)

    def arm(level: float) -> list[np.ndarray]:
        logs = generator.normal(0, boot_sd, (boots, 1)) + generator.normal(0, run_sd, (boots, runs))
        return list(level * np.exp(logs))

    return Cell(arm(100), arm(140), better="lower", min_effect=0.01)


@pytest.mark.parametrize(("boot_sd", "run_sd"), [(0.02, 0.01), (0.01, 0.03)])
def test_variances_of_boots_and_runs_are_found(boot_sd: float, run_sd: float) -> None:
    split = split_variance(simulated(boot_sd, run_sd))
    assert split is not None
    assert split.run == pytest.approx(run_sd**2, rel=0.1)
    assert split.boot == pytest.approx(boot_sd**2, rel=0.25)


def test_boots_of_different_size_are_split_without_bias() -> None:
    full = simulated(0.02, 0.02, runs=6)
    ragged = Cell(
        [boot[: 1 + i % 6] for i, boot in enumerate(full.base)], full.patched, better="lower", min_effect=0.01
    )
    split = split_variance(ragged)
    assert split is not None
    assert split.boot == pytest.approx(0.02**2, rel=0.2)


def test_a_change_between_the_arms_is_no_variance() -> None:
    split = split_variance(cell([[10.0, 10.0], [10.0, 10.0]], [[30.0, 30.0], [30.0, 30.0]]))
    assert split == Variances(boot=0.0, run=0.0)


@pytest.mark.parametrize(
    ("base", "patched"),
    [
        ([], []),
        ([[]], [[]]),
        ([[1.0], [2.0]], [[1.0], [2.0]]),
        ([[1.0, 2.0]], [[1.0, 2.0]]),
        ([[1.0, math.nan], [1.0, 2.0]], [[1.0, 2.0]]),
        ([[1.0, 0.0], [1.0, 2.0]], [[1.0, 2.0]]),
        ([[1.0, math.inf], [-1.0, 2.0]], [[1.0, 2.0]]),
    ],
)
def test_variances_that_cannot_be_told_are_none(base: list[list[float]], patched: list[list[float]]) -> None:
    assert split_variance(cell(base, patched)) is None


def test_extreme_values_have_finite_variances() -> None:
    split = split_variance(cell([[1e-300, 1e300], [1e300, 1e-300]], [[1e-300, 5e-324]]))
    assert split is not None
    assert math.isfinite(split.run)
    assert split.boot == 0


def test_one_cell_gets_the_number_of_kalibera_and_jones() -> None:
    """sqrt(90 / 10 * 0.0004 / 0.0001) is 6."""
    found = runs_per_boot([Variances(boot=0.0001, run=0.0004)], COSTS)
    assert (found.runs, found.basis, found.cells) == (6, Basis.VARIANCES, 1)


def test_dear_boots_and_noisy_runs_ask_for_more_runs() -> None:
    split = Variances(boot=0.0001, run=0.0001)
    usual = runs_per_boot([split], COSTS).runs
    assert runs_per_boot([split], Costs(boot=900, run=10)).runs > usual
    assert runs_per_boot([Variances(boot=0.0001, run=0.001)], COSTS).runs > usual
    assert runs_per_boot([split], Costs(boot=90, run=100)).runs < usual


def test_boots_that_all_agree_ask_for_the_most_runs_and_runs_that_agree_for_the_fewest() -> None:
    limits = Limits(fewest=2, most=9)
    assert runs_per_boot([Variances(boot=0.0, run=0.01)], COSTS, limits).runs == 9
    assert runs_per_boot([Variances(boot=0.01, run=0.0)], COSTS, limits).runs == 2


def test_several_cells_settle_between_their_own_numbers_whatever_their_noise() -> None:
    few, many = Variances(boot=0.0004, run=0.0004), Variances(boot=0.0001, run=0.0009)
    louder = Variances(boot=few.boot * 1e4, run=few.run * 1e4)
    alone = [runs_per_boot([split], COSTS).runs for split in (few, many)]
    together = runs_per_boot([few, many], COSTS)
    assert alone[0] < together.runs < alone[1]
    assert runs_per_boot([louder, many], COSTS) == together


@pytest.mark.parametrize(("boots", "most"), [(4, 6), (7, 6), (8, 20)])
def test_few_boots_ask_for_no_more_than_twice_the_usual_runs(boots: int, most: int) -> None:
    arm = [[1.0, 2.0]] * boots
    assert cautious([cell(arm, arm), cell([*arm, []], [[1.0]])]).most == most


def test_the_first_look_does_not_jump_to_the_most_runs() -> None:
    """The two runs of a boot differ, the boots do not: it looks as if more boots were of no use."""
    split = cell([[1.0, 2.0]] * 4, [[1.0, 2.0]] * 4)
    assert next_step([split], costs=COSTS).repetitions == Repetitions(6, Basis.VARIANCES, 1)


def test_without_spread_the_fewest_runs_do() -> None:
    found = runs_per_boot([Variances(boot=0.0, run=0.0), None], COSTS)
    assert (found.runs, found.basis, found.cells) == (1, Basis.NO_SPREAD, 1)


@pytest.mark.parametrize("unknown", [[], [None, None]])
def test_without_knowledge_the_usual_number_is_given(unknown: list[Variances | None]) -> None:
    found = runs_per_boot(unknown, COSTS)
    assert (found.runs, found.basis, found.cells) == (3, Basis.UNKNOWN, 0)


@pytest.mark.parametrize("cost", [0.0, -1.0, math.nan, math.inf, 1e308])
def test_costs_that_are_no_time_are_refused(cost: float) -> None:
    with pytest.raises(ValueError, match="costs: boot"):
        Costs(boot=cost, run=1)
    with pytest.raises(ValueError, match="costs: run"):
        Costs(boot=1, run=cost)


@pytest.mark.parametrize(("fewest", "usual", "most"), [(0, 3, 20), (4, 3, 20), (1, 30, 20)])
def test_limits_out_of_order_are_refused(fewest: int, usual: int, most: int) -> None:
    with pytest.raises(ValueError, match="limits"):
        Limits(fewest=fewest, usual=usual, most=most)

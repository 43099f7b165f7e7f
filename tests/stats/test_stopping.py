"""The verdict of a cell over all its looks, and how often it errs."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from server.stats import Cell, StatisticalVerdict
from server.stats.cells import Values
from server.stats.comparison.decisions import Design, State, judge_cells
from tests.stats.sessions import cells, run, until

LOOKS = Design().looks


def test_no_difference_is_rejected_as_often_as_alpha_says() -> None:
    found = judge_cells(cells(1.0, count=1200, seed=1, min_effect=0), Design())
    assert 0.03 < np.mean([one.differs for one in found]) < 0.07


def test_giving_up_early_saves_boots_and_adds_no_false_alarms() -> None:
    sample = cells(1.0, count=200, seed=2, min_effect=0)
    hasty, share = run(sample, Design())
    patient = judge_cells(sample, Design(futility_of_difference=0))
    assert share < 0.7
    assert sum(one.differs for one in hasty) <= sum(one.differs for one in patient)


def test_no_effect_is_hardly_ever_called_a_change() -> None:
    found = judge_cells(cells(1.0, count=600, seed=3), Design())
    verdicts = Counter(one.verdict for one in found)
    assert verdicts[StatisticalVerdict.REGRESSED] + verdicts[StatisticalVerdict.IMPROVED] <= 5


def test_clear_changes_are_found_with_few_boots() -> None:
    found, share = run(cells(1 / 1.08, count=150, seed=4), Design())
    assert Counter(one.verdict for one in found) == {StatisticalVerdict.IMPROVED: 150}
    assert share < 0.4


def test_a_true_change_is_not_called_unchanged() -> None:
    found = judge_cells(cells(1.03, count=400, seed=5), Design())
    assert sum(one.verdict is StatisticalVerdict.UNCHANGED for one in found) <= 2


def test_a_decision_stands_when_more_boots_say_nothing_new() -> None:
    base = [[100.0 + 0.1 * i] for i in range(4)] + [[60.0], [150.0]]
    patched = [[110.0 + 0.1 * i] for i in range(4)] + [[150.0], [60.0]]
    cell = Cell(base, patched, better="lower", min_effect=0.01)
    early, late = judge_cells([until(cell, 4), cell], Design())
    assert early.verdict is late.verdict is StatisticalVerdict.REGRESSED
    assert late.decided_at is not None
    assert (late.decided_at.base, late.looks[-1].base) == (4, 6)
    assert late.looks[-1].comparison.verdict is StatisticalVerdict.INCONCLUSIVE


def test_more_boots_that_decide_otherwise_are_believed() -> None:
    base = [[100.0 + 0.01 * i] for i in range(16)]
    patched = [[102.0 + 0.01 * i] for i in range(4)] + [[100.0 + 0.01 * i] for i in range(12)]
    judged = judge_cells([until(Cell(base, patched, "lower", 0.01), 4), Cell(base, patched, "lower", 0.01)], Design())
    assert [one.verdict for one in judged] == [StatisticalVerdict.REGRESSED, StatisticalVerdict.UNCHANGED]


@pytest.mark.parametrize("with_values", [0, 3])
def test_boots_that_give_no_values_end_the_cell(with_values: int) -> None:
    good: list[Values] = [[100.0 + 0.1 * i] for i in range(200)]
    empty: list[Values] = [[]] * 200
    few: list[Values] = [[level] for level in (50.0, 100.0, 200.0)[:with_values]]
    for base, patched in ((good, few + empty), (few + empty, good), (few + empty, few + empty)):
        one = judge_cells([Cell(base, patched, "lower", 0.01)], Design())[0]
        assert (one.state, one.verdict) == (State.UNDECIDABLE, StatisticalVerdict.INCONCLUSIVE)
        assert with_values or one.reason == "boots gave no values"


def test_some_lost_boots_are_run_again() -> None:
    one = judge_cells([Cell([[]] * 31, [[100.0]] * 4, "lower", 0.01)], Design())[0]
    assert one.state is State.OPEN


def test_a_tiny_chance_is_no_chance_of_zero() -> None:
    found = judge_cells([until(cell, 12) for cell in cells(1.0, count=20, seed=14, spread=0.5)], Design())
    reasons = [one.reason for one in found if one.state is State.UNDECIDABLE]
    assert any("less than 1 %" in reason for reason in reasons)
    assert not any("only 0 %" in reason for reason in reasons)


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -1.0])
def test_values_that_cannot_be_judged_end_the_cell_with_their_reason(bad: float) -> None:
    cell = Cell([[bad]] * 4, [[1.0]] * 4, better="lower", min_effect=0.01)
    one = judge_cells([cell], Design())[0]
    assert (one.state, one.verdict, one.p_value) == (State.UNDECIDABLE, StatisticalVerdict.INCONCLUSIVE, None)
    assert one.reason.startswith("base kernel: ")


def test_equal_constants_are_unchanged_and_different_ones_certain() -> None:
    equal = Cell([[2168.0]] * 4, [[2168.0]] * 4, better="lower", min_effect=0.01, resolution=1.0)
    other = Cell([[5762.0]] * 4, [[9871.0]] * 4, better="lower", min_effect=0.01, resolution=1.0)
    judged = judge_cells([equal, other], Design())
    assert [one.verdict for one in judged] == [StatisticalVerdict.UNCHANGED, StatisticalVerdict.REGRESSED]
    assert [one.differs for one in judged] == [False, True]


def test_exact_counts_are_decided_at_the_first_look() -> None:
    same = Cell([[2168.0]] * 4, [[2169.0]] * 4, "lower", 0.01, resolution=1.0, exact=True)
    more = Cell([[5762.0]] * 4, [[5900.0]] * 4, "lower", 0.01, resolution=1.0, exact=True)
    judged = judge_cells([same, more], Design())
    assert [one.verdict for one in judged] == [StatisticalVerdict.UNCHANGED, StatisticalVerdict.REGRESSED]


@pytest.mark.parametrize("scale", [1e-300, 1e-9, 1e300])
def test_extreme_values_are_judged(scale: float) -> None:
    sample = [
        replace(
            one, base=[scale * np.asarray(b) for b in one.base], patched=[scale * np.asarray(p) for p in one.patched]
        )
        for one in cells(1.1, count=20, seed=8)
    ]
    assert {one.verdict for one in judge_cells(sample, Design())} == {StatisticalVerdict.REGRESSED}

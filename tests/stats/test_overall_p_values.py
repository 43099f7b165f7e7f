"""The p-value of a cell over all its looks, alone and in a family."""

import math
from dataclasses import replace

import numpy as np
import pytest

from server.stats import Cell, StatisticalVerdict, judge_family
from server.stats.comparison.decisions import Design, State, judge_cells
from tests.stats.sessions import cells, run, until


def test_differing_goes_with_the_overall_p_value() -> None:
    sample = cells(1.012, count=100, seed=7)
    for look in (4, 8, 16):
        for one in judge_cells([until(cell, look) for cell in sample], Design()):
            assert one.p_value is not None
            if abs(one.p_value - 0.05) > 1e-6:
                assert one.differs == (one.p_value < 0.05)


@pytest.mark.parametrize("spread", [0.006, 0.008, 0.01])
def test_the_p_value_holds_for_cells_that_stop_without_rejecting(spread: float) -> None:
    """Without effect most of these cells are soon called unchanged, or given up, while their p-value is still small."""
    found, _ = run(cells(1.0, count=1000, seed=11, spread=spread), Design())
    p_values = np.array([one.p_value for one in found], dtype=np.float64)
    assert np.mean(p_values <= 0.05) == np.mean([one.differs for one in found])
    assert np.mean(p_values <= 0.05) < 0.05 + 2 * math.sqrt(0.05 * 0.95 / 1000)
    assert np.mean(p_values <= 0.01) < 0.01 + 2 * math.sqrt(0.01 * 0.99 / 1000)


def test_a_family_judges_a_cell_by_the_p_value_of_its_whole_design() -> None:
    found, _ = run([*cells(1.03, count=10, seed=12), *cells(1.0, count=10, seed=13)], Design())
    family = [one.comparison for one in found if one.comparison is not None]
    assert [one.p_value for one in family] == [one.p_value for one in found]
    assert [one.verdict for one in family] == [one.verdict for one in found]
    judged = judge_family(family)
    assert {one.family_size for one in judged} == {20}
    for cell, one in zip(found, judged, strict=True):
        assert cell.p_value is not None
        assert one.p_adjusted is not None
        assert one.p_adjusted >= cell.p_value


def test_a_design_without_a_look_has_no_comparison() -> None:
    assert judge_cells([Cell([], [], "lower", 0.01)], Design())[0].comparison is None


def test_a_family_cannot_be_passed_by_the_small_p_value_of_a_late_look() -> None:
    """Of one look the p-value may be smaller than what the looks before it have spent, that of the design cannot."""
    found = judge_cells(cells(1.015, count=200, seed=15, min_effect=0, spread=0.02), Design())
    smaller = 0
    for one in found:
        first = next((look for look in one.looks if (look.comparison.p_value or 0) <= look.level.nominal), None)
        if first is not None and one.comparison is not None and one.comparison.p_value is not None:
            assert one.comparison.p_value >= first.level.spent_before
            smaller += (first.comparison.p_value or 0) < first.level.spent_before
    assert smaller > 0


def test_a_decided_cell_keeps_its_p_value_when_a_later_boot_cannot_be_judged() -> None:
    quiet = Cell([[100.0 + 0.01 * i] for i in range(6)], [[100.0 + 0.01 * i] for i in range(6)], "lower", 0.01)
    broken = replace(quiet, base=[*quiet.base[:5], [math.nan]])
    whole, one = judge_cells([until(quiet, 4), broken], Design())
    assert (one.state, one.verdict) == (State.DECIDED, StatisticalVerdict.UNCHANGED)
    assert one.p_value == whole.p_value
    assert one.p_value is not None

"""The verdict of a cell over all its looks, and how often it errs."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from server.stats import Cell, Verdict
from server.stats.evidence import Design
from server.stats.stopping import CellProgress, State, judge_cells

LOOKS = Design().looks


def cells(effect: float, *, count: int, seed: int, min_effect: float = 0.01, spread: float = 0.01) -> list[Cell]:
    generator = np.random.default_rng(seed)
    base = np.exp(generator.normal(0, spread, (count, 16, 1)))
    patched = effect * np.exp(generator.normal(0, spread, (count, 16, 1)))
    return [Cell(list(b), list(p), better="lower", min_effect=min_effect) for b, p in zip(base, patched, strict=True)]


def until(cell: Cell, look: int) -> Cell:
    return replace(cell, base=cell.base[:look], patched=cell.patched[:look])


def run(sample: list[Cell], design: Design) -> tuple[list[CellProgress], float]:
    """Each cell until it is decided or given up; and the share of the boots that were used."""
    last: dict[int, tuple[CellProgress, int]] = {}
    live = list(range(len(sample)))
    for look in design.looks:
        judged = judge_cells([until(sample[index], look) for index in live], design)
        last |= {index: (progress, look) for index, progress in zip(live, judged, strict=True)}
        live = [index for index in live if last[index][0].state is State.OPEN]
    share = sum(used for _, used in last.values()) / (len(sample) * design.budget)
    return [last[index][0] for index in range(len(sample))], share


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
    assert verdicts[Verdict.REGRESSED] + verdicts[Verdict.IMPROVED] <= 5


def test_clear_changes_are_found_with_few_boots() -> None:
    found, share = run(cells(1 / 1.08, count=150, seed=4), Design())
    assert Counter(one.verdict for one in found) == {Verdict.IMPROVED: 150}
    assert share < 0.4


def test_a_true_change_is_not_called_unchanged() -> None:
    found = judge_cells(cells(1.03, count=400, seed=5), Design())
    assert sum(one.verdict is Verdict.UNCHANGED for one in found) <= 2


def test_a_decision_stands_when_more_boots_say_nothing_new() -> None:
    base = [[100.0 + 0.1 * i] for i in range(4)] + [[60.0], [150.0]]
    patched = [[110.0 + 0.1 * i] for i in range(4)] + [[150.0], [60.0]]
    cell = Cell(base, patched, better="lower", min_effect=0.01)
    early, late = judge_cells([until(cell, 4), cell], Design())
    assert early.verdict is late.verdict is Verdict.REGRESSED
    assert late.decided_at is not None
    assert (late.decided_at.base, late.looks[-1].base) == (4, 6)
    assert late.looks[-1].comparison.verdict is Verdict.INCONCLUSIVE


def test_more_boots_that_decide_otherwise_are_believed() -> None:
    base = [[100.0 + 0.01 * i] for i in range(16)]
    patched = [[102.0 + 0.01 * i] for i in range(4)] + [[100.0 + 0.01 * i] for i in range(12)]
    judged = judge_cells([until(Cell(base, patched, "lower", 0.01), 4), Cell(base, patched, "lower", 0.01)], Design())
    assert [one.verdict for one in judged] == [Verdict.REGRESSED, Verdict.UNCHANGED]


def test_differing_goes_with_the_overall_p_value() -> None:
    sample = cells(1.012, count=100, seed=7)
    for look in (4, 8, 16):
        for one in judge_cells([until(cell, look) for cell in sample], Design()):
            assert one.p_value is not None
            if abs(one.p_value - 0.05) > 1e-6:
                assert not one.differs or one.p_value < 0.05
                assert one.differs or look < 16 or one.p_value > 0.05


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -1.0])
def test_values_that_cannot_be_judged_end_the_cell_with_their_reason(bad: float) -> None:
    cell = Cell([[bad]] * 4, [[1.0]] * 4, better="lower", min_effect=0.01)
    one = judge_cells([cell], Design())[0]
    assert (one.state, one.verdict, one.p_value) == (State.UNDECIDABLE, Verdict.INCONCLUSIVE, None)
    assert one.reason.startswith("base kernel: ")


def test_equal_constants_are_unchanged_and_different_ones_certain() -> None:
    equal = Cell([[2168.0]] * 4, [[2168.0]] * 4, better="lower", min_effect=0.01, resolution=1.0)
    other = Cell([[5762.0]] * 4, [[9871.0]] * 4, better="lower", min_effect=0.01, resolution=1.0)
    judged = judge_cells([equal, other], Design())
    assert [one.verdict for one in judged] == [Verdict.UNCHANGED, Verdict.REGRESSED]
    assert [one.differs for one in judged] == [False, True]


def test_exact_counts_are_decided_at_the_first_look() -> None:
    same = Cell([[2168.0]] * 4, [[2169.0]] * 4, "lower", 0.01, resolution=1.0, exact=True)
    more = Cell([[5762.0]] * 4, [[5900.0]] * 4, "lower", 0.01, resolution=1.0, exact=True)
    judged = judge_cells([same, more], Design())
    assert [one.verdict for one in judged] == [Verdict.UNCHANGED, Verdict.REGRESSED]


@pytest.mark.parametrize("scale", [1e-300, 1e-9, 1e300])
def test_extreme_values_are_judged(scale: float) -> None:
    sample = [
        replace(
            one, base=[scale * np.asarray(b) for b in one.base], patched=[scale * np.asarray(p) for p in one.patched]
        )
        for one in cells(1.1, count=20, seed=8)
    ]
    assert {one.verdict for one in judge_cells(sample, Design())} == {Verdict.REGRESSED}

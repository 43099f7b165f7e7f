"""What a session should run next, on boots as they come in."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.stats import Cell, StatisticalVerdict
from server.stats.comparison.decisions import Design, Progress, State, next_step


def boots(level: float, count: int, *, seed: int, spread: float = 0.01, runs: int = 3) -> list[np.ndarray]:
    """The first boots of a seed are the same, however many are asked for."""
    generator = np.random.default_rng(seed)
    return [level * np.exp(generator.normal(0, spread) + generator.normal(0, spread, runs)) for _ in range(count)]


def cell(base: int, patched: int, *, effect: float = 1.0, seed: int = 1, spread: float = 0.01) -> Cell:
    return Cell(
        boots(100, base, seed=seed, spread=spread),
        boots(100 * effect, patched, seed=seed + 1000, spread=spread),
        better="lower",
        min_effect=0.01,
    )


def wanted(progress: Progress) -> tuple[int, int]:
    return progress.base_boots, progress.patched_boots


def test_an_empty_session_starts_with_the_first_look() -> None:
    progress = next_step([Cell([], [], better="lower", min_effect=0.01)])
    assert wanted(progress) == (4, 4)
    assert progress.cells[0].state is State.OPEN
    assert progress.cells[0].reason == "the first look is at 4 boots a side"


def test_no_cells_need_no_boots() -> None:
    progress = next_step([])
    assert progress.finished
    assert wanted(progress) == (0, 0)


def test_a_large_change_is_decided_at_the_first_look() -> None:
    progress = next_step([cell(4, 4, effect=1.5)])
    assert progress.finished
    assert progress.cells[0].verdict is StatisticalVerdict.REGRESSED
    assert progress.cells[0].differs
    assert wanted(progress) == (0, 0)


def test_a_quiet_cell_is_soon_called_unchanged() -> None:
    progress = next_step([cell(4, 4, spread=0.0005)])
    assert progress.finished
    assert progress.cells[0].verdict is StatisticalVerdict.UNCHANGED


def test_a_hopelessly_noisy_cell_is_given_up_before_the_boots_are_spent() -> None:
    progress = next_step([cell(8, 8, spread=0.3, seed=5)])
    assert progress.cells[0].state is State.UNDECIDABLE
    assert progress.cells[0].verdict is StatisticalVerdict.INCONCLUSIVE
    assert progress.cells[0].chance is not None
    assert progress.cells[0].chance < 0.2
    assert "a verdict has a chance of only" in progress.cells[0].reason
    assert progress.finished


def test_a_session_goes_on_for_its_open_cells_only() -> None:
    cells = [cell(4, 4, effect=1.5), cell(4, 4, effect=1.03, spread=0.012), cell(4, 4, spread=0.0005)]
    progress = next_step(cells)
    assert progress.open_cells == (1,)
    assert wanted(progress) == (2, 2)
    assert [one.state for one in progress.cells] == [State.DECIDED, State.OPEN, State.DECIDED]


@pytest.mark.parametrize(
    ("base", "patched", "expected"),
    [(3, 4, (1, 0)), (4, 5, (2, 1)), (5, 5, (1, 1)), (7, 7, (1, 1)), (7, 8, (1, 0)), (9, 8, (3, 4)), (15, 16, (1, 0))],
)
def test_after_lost_boots_the_arms_are_brought_to_the_next_look(
    base: int, patched: int, expected: tuple[int, int]
) -> None:
    progress = next_step([cell(base, patched, effect=1.012, spread=0.02)], Design(futility=0))
    assert progress.cells[0].state is State.OPEN
    assert wanted(progress) == expected


def test_boots_without_values_do_not_count() -> None:
    whole = cell(4, 4, effect=1.5)
    holed = Cell([[], *whole.base], [*whole.patched, []], better="lower", min_effect=0.01)
    assert next_step([holed]).cells == next_step([whole]).cells
    assert wanted(next_step([Cell([[], []], [[], [1.0]], better="lower", min_effect=0.01)])) == (4, 3)


def test_boots_beyond_a_look_decide_nothing_before_the_next_one() -> None:
    early, late = (next_step([cell(count, count, effect=1.03)]) for count in (4, 5))
    assert late.cells == early.cells


def test_a_session_ends_when_one_arm_never_gives_values() -> None:
    progress = next_step([Cell([[1.0 + i / 100] for i in range(200)], [[]] * 200, better="lower", min_effect=0.01)])
    assert progress.finished
    assert progress.cells[0].reason == "boots gave no values"


def test_spent_boots_leave_nothing_to_run() -> None:
    progress = next_step([cell(16, 16, effect=1.012)])
    assert progress.finished
    assert progress.cells[0].state is State.UNDECIDABLE
    assert progress.cells[0].reason.endswith("its boots are spent")


def test_each_cell_is_judged_alone() -> None:
    cells = [cell(4, 5, effect=effect, seed=seed) for seed, effect in enumerate((1.0, 1.01, 1.05, 1.3))]
    together, alone = next_step(cells).cells, [next_step([one]).cells[0] for one in cells]
    assert [(one.state, one.verdict) for one in together] == [(one.state, one.verdict) for one in alone]
    assert [one.p_value for one in together] == pytest.approx([one.p_value for one in alone])


def test_a_session_that_ended_has_no_open_cells() -> None:
    cells = [cell(base, patched, effect=1.02) for base, patched in ((0, 0), (1, 7), (2, 3), (5, 5), (16, 3))]
    progress = next_step(cells, ended=True)
    assert progress.finished
    assert {one.state for one in progress.cells} <= {State.DECIDED, State.UNDECIDABLE}


any_boots = st.lists(st.lists(st.floats(), max_size=3), max_size=9)
good_boots = st.lists(st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=3), max_size=9)


@given(any_boots | good_boots, any_boots | good_boots, st.floats(0, 10), st.booleans())
def test_no_data_raise_or_warn(base: list[list[float]], patched: list[list[float]], least: float, ended: bool) -> None:
    progress = next_step([Cell(base, patched, "higher", least)], ended=ended)
    (one,) = progress.cells
    assert (one.verdict is StatisticalVerdict.INCONCLUSIVE) == (one.state is not State.DECIDED)
    assert one.reason or one.state is State.DECIDED
    assert progress.finished == (wanted(progress) == (0, 0))
    assert one.p_value is None or 0 <= one.p_value <= 1


@pytest.mark.parametrize("design", [Design(alpha=1e-6), Design(alpha=0.4), Design(looks=(2, 3)), Design(looks=(16,))])
@pytest.mark.parametrize("gamma", [-100.0, 0.0, 100.0])
def test_unusual_designs_work(design: Design, gamma: float) -> None:
    design = replace(design, gamma=gamma)
    count = design.budget
    progress = next_step([cell(count, count, effect=4.0), cell(count, count, spread=0.2)], design)
    assert progress.finished

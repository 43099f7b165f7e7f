"""The looks that a cell's boots allow."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from server.stats import Cell, compare
from server.stats.cells import Values
from server.stats.comparison.decisions import Design, Look, looks_of, with_data


def cell(base: int, patched: int) -> Cell:
    generator = np.random.default_rng(9)
    values = np.exp(generator.normal(0, 0.02, (2, 40, 1)))
    return Cell(
        list(values[0, :base]),
        list(values[1, :patched]),
        better="lower",
        min_effect=0.01,
        base_positions=list(range(0, 2 * base, 2)),
        patched_positions=list(range(1, 2 * patched, 2)),
    )


def taken(base: int, patched: int, *, lost: int = 0, ended: bool = False) -> tuple[Look, ...]:
    """The looks at so many boots with values, after so many patched ones without."""
    whole = cell(base, patched)
    empty: list[Values] = [[]] * lost
    holed = replace(
        whole,
        patched=[*whole.patched, *empty],
        patched_positions=[*(whole.patched_positions or []), *range(100, 100 + lost)],
    )
    return looks_of([holed], Design(), ended=ended)[0]


@pytest.mark.parametrize(
    ("base", "patched", "expected"),
    [
        (3, 3, []),
        (3, 4, []),
        (4, 4, [(4, 4)]),
        (4, 5, [(4, 4)]),
        (5, 5, [(4, 4)]),
        (3, 8, []),
        (7, 12, [(4, 4), (6, 6)]),
        (8, 8, [(4, 4), (6, 6), (8, 8)]),
        (16, 16, [(4, 4), (6, 6), (8, 8), (12, 12), (16, 16)]),
        (18, 17, [(4, 4), (6, 6), (8, 8), (12, 12), (18, 17)]),
    ],
)
def test_looks_are_taken_where_they_were_planned(base: int, patched: int, expected: list[tuple[int, int]]) -> None:
    assert [(look.base, look.patched) for look in taken(base, patched)] == expected


@pytest.mark.parametrize(
    ("base", "patched", "expected"),
    [
        (3, 4, []),
        (4, 5, [(4, 4), (4, 5)]),
        (5, 5, [(4, 4), (5, 5)]),
        (3, 8, [(3, 6), (3, 8)]),
    ],
)
def test_where_a_boot_gave_no_values_there_is_a_look_at_what_is_left(
    base: int, patched: int, expected: list[tuple[int, int]]
) -> None:
    assert [(look.base, look.patched) for look in taken(base, patched, lost=1)] == expected


def test_a_look_is_the_comparison_of_its_first_boots_at_its_level() -> None:
    for look in taken(8, 8):
        alone = compare([cell(look.base, look.patched)], alpha=look.level.nominal)[0]
        assert look.comparison.verdict is alone.verdict
        assert look.comparison.ratio_low == pytest.approx(alone.ratio_low)
        assert look.comparison.p_value == pytest.approx(alone.p_value)


def test_unplanned_looks_count_by_their_information() -> None:
    planned, unplanned = taken(5, 5, lost=2)
    assert unplanned.level.fraction == pytest.approx(5 / 16)
    assert 0 < unplanned.level.nominal < 0.01
    assert planned == taken(4, 4)[0]


def test_an_ended_session_looks_at_few_boots_too_and_spends_all() -> None:
    assert [(look.base, look.patched) for look in taken(3, 2, ended=True)] == [(3, 2)]
    assert taken(3, 2, ended=True)[0].level.nominal == pytest.approx(0.05, rel=1e-6)
    assert taken(1, 9, ended=True) == ()
    assert taken(8, 8, ended=True)[-1].level.nominal > 0.03


def test_boots_without_values_go_with_their_positions() -> None:
    holed = Cell([[1.0], [], [2.0]], [[3.0], [4.0], []], "lower", 0.01, 0.0, [0, 3, 4], [1, 2, 5])
    kept = with_data(holed)
    assert (list(kept.base), list(kept.patched)) == ([[1.0], [2.0]], [[3.0], [4.0]])
    assert (kept.base_positions, kept.patched_positions) == ([0, 4], [1, 2])


def test_boots_are_looked_at_in_the_order_of_their_positions() -> None:
    whole = cell(8, 8)
    turned = replace(whole, base=list(reversed(whole.base)), base_positions=list(range(14, -1, -2)))
    assert looks_of([turned], Design()) == looks_of([whole], Design())


@pytest.mark.parametrize(
    ("misuse", "named"),
    [
        ({"looks": ()}, "looks"),
        ({"looks": (4, 4)}, "looks"),
        ({"looks": (8, 4)}, "looks"),
        ({"looks": (1, 4)}, "looks"),
        ({"looks": (4, 1001)}, "looks"),
        ({"looks": (4.5, 6)}, "looks"),
        ({"looks": (True, 6)}, "looks"),
        ({"looks": [4, 6]}, "looks"),
        ({"alpha": 0.0}, "alpha"),
        ({"alpha": 1e-10}, "alpha"),
        ({"alpha": 0.5}, "alpha"),
        ({"alpha": 1.0}, "alpha"),
        ({"alpha": math.nan}, "alpha"),
        ({"gamma": math.inf}, "gamma"),
        ({"futility": 1.1}, "futility"),
        ({"futility_of_difference": math.nan}, "futility_of_difference"),
        ({"futility": -0.1}, "futility"),
    ],
)
def test_a_design_that_makes_no_sense_is_refused(misuse: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        Design(**misuse)

"""What is no cell at all is refused with the names of cell and arm."""

from typing import Any

import pytest

from server.stats import Cell, compare

GOOD = [[1.0], [2.0]]


@pytest.mark.parametrize("bad", [[[1.0], [10**400]], [[1.0], ["fast"]], [["fast"]], [[1.0], [[1.0]]], [1.0, 2.0]])
def test_values_that_are_no_numbers_are_refused_by_the_name_of_the_cell(bad: Any) -> None:
    fine = Cell(GOOD, GOOD, "lower", 0.01, name="other")
    with pytest.raises(ValueError, match=r"host-1/copy: base kernel: the boot .* is no row of numbers"):
        compare([fine, Cell(bad, GOOD, "lower", 0.01, name="host-1/copy")])
    with pytest.raises(ValueError, match="host-1/copy: patched kernel: the boot"):
        compare([fine, Cell(GOOD, bad, "lower", 0.01, name="host-1/copy")])


@pytest.mark.parametrize("alpha", [0.0, -0.05, 0.51, 1.0, float("nan")])
def test_levels_are_above_zero_and_at_most_one_half(alpha: float) -> None:
    with pytest.raises(ValueError, match="alpha"):
        compare([], alpha=alpha)


def test_a_setting_that_floats_cannot_hold_is_refused_by_the_name_of_the_cell() -> None:
    with pytest.raises(ValueError, match="host-1/copy: resolution"):
        Cell(GOOD, GOOD, "lower", 0.01, resolution=float("inf"), name="host-1/copy")

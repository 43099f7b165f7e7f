import numpy as np
import pytest

from server.stats.cells import Cell, Shape, padded, shape_of
from server.stats.comparison.structures import CORRELATIONS, structures_of

ORDERED = Shape((3,) * 4, (3,) * 4, (0, 3, 4, 7, 1, 2, 5, 6))


def test_boots_without_values_have_no_place_in_the_shape() -> None:
    cell = Cell([[1.0], []], [[2.0, 3.0], [4.0]], "lower", 0.01, base_positions=[0, 1], patched_positions=[2, 9])
    assert shape_of(cell) == Shape((1,), (2, 1), (0, 1, 2))


def test_two_boots_in_one_place_give_no_order() -> None:
    cell = Cell([[1.0]], [[2.0]], "lower", 0.01, base_positions=[4], patched_positions=[4])
    assert shape_of(cell).order is None


def test_values_are_filled_up_to_the_longest_boot() -> None:
    cell = Cell([[1.0, 2.0], [], [3.0]], [[4.0]], "lower", 0.01)
    expected = [[[1.0, 2.0], [3.0, np.nan], [4.0, np.nan]]]
    np.testing.assert_array_equal(padded([cell], shape_of(cell)), expected)


def test_all_structures_see_no_difference_in_equal_means() -> None:
    structures = structures_of(ORDERED)
    assert structures.residual @ np.ones(8) == pytest.approx(0, abs=1e-9)
    assert structures.contrast @ np.ones(8) == pytest.approx(0, abs=1e-9)
    assert structures.contrast @ np.repeat([0, 1], 4) == pytest.approx(1)


def test_boots_with_as_many_runs_count_alike_without_a_trend() -> None:
    structures = structures_of(ORDERED)
    for contrast in structures.contrast[~structures.trend]:
        assert contrast == pytest.approx(np.repeat([-0.25, 0.25], 4))


def test_variance_of_the_difference_grows_with_the_correlation_inside_boots() -> None:
    variance = structures_of(ORDERED).unit_variance[: len(CORRELATIONS)]
    assert variance == pytest.approx([0.5 * (c + (1 - c) / 3) for c in CORRELATIONS])


def test_boots_with_more_runs_count_more_where_runs_are_independent() -> None:
    contrast = structures_of(Shape((1, 3), (2, 2))).contrast[0]
    assert contrast == pytest.approx([-0.25, -0.75, 0.5, 0.5])


def test_a_straight_line_over_the_session_leaves_no_residual_in_its_structure() -> None:
    structures, line = structures_of(ORDERED), np.array(ORDERED.order, dtype=float)
    lines = structures.residual[structures.freedom < structures.exponent]
    assert len(lines) == 3
    assert lines @ line == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("shape", [Shape((3,) * 4, (3,) * 4), Shape((3, 3), (3, 3), (0, 2, 1, 3))])
def test_without_an_order_or_with_few_boots_there_is_no_trend(shape: Shape) -> None:
    assert not structures_of(shape).trend.any()


def test_one_run_in_each_boot_leaves_only_boots_to_count() -> None:
    structures = structures_of(Shape((1,) * 3, (1,) * 2))
    assert structures.within_factor.tolist() == [0.0]
    assert structures.freedom.tolist() == [3.0]

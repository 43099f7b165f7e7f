import math

import numpy as np
import pytest

from server.stats.cells import Flag
from server.stats.comparison.estimates import boot_value, read_side


def test_boot_value_is_the_middle_value() -> None:
    assert boot_value([5.0, 1.0, 100.0]) == 5.0


def test_boot_value_of_an_even_count_is_the_geometric_mean_of_the_middle_two() -> None:
    assert boot_value([1.0, 2.0, 8.0, 1000.0]) == pytest.approx(4.0)


def test_boot_value_of_equal_values_is_that_value_to_the_last_bit() -> None:
    assert boot_value([5761.6088] * 4) == 5761.6088


def test_boot_value_of_huge_values_does_not_overflow() -> None:
    assert boot_value([1e300, 1e302]) == pytest.approx(1e301)


def test_mean_and_deviation_are_those_of_boots_not_of_values() -> None:
    side = read_side("base", [[10.0, 11.0, 90.0], [13.0, 13.0, 13.0]])
    assert (side.arm.boots, side.arm.mean) == (2, 12.0)
    assert side.arm.sd == pytest.approx(math.sqrt(2))


def test_equal_boots_have_a_deviation_of_exactly_zero() -> None:
    assert read_side("base", [[0.1, 0.1]] * 7).arm.sd == 0.0


def test_mean_of_the_largest_values_does_not_overflow() -> None:
    side = read_side("base", [[1.7e308], [1.5e308]])
    assert side.arm.mean == pytest.approx(1.6e308)
    assert side.arm.sd == pytest.approx(0.1e308 * math.sqrt(2))


def test_boot_without_values_does_not_count() -> None:
    assert read_side("base", [[1.0], [], [3.0]]).arm.boots == 2


@pytest.mark.parametrize(
    ("boots", "flag", "words"),
    [
        ([], Flag.TOO_FEW_BOOTS, "no values"),
        ([[], []], Flag.TOO_FEW_BOOTS, "no values"),
        ([[1.0, 2.0]], Flag.TOO_FEW_BOOTS, "only 1 boot"),
        ([[1.0, math.nan], [2.0]], Flag.NOT_FINITE, "1 of 3 values"),
        ([[1.0, math.inf], [-math.inf]], Flag.NOT_FINITE, "2 of 3 values"),
        ([[1.0, 0.0], [2.0]], Flag.NON_POSITIVE, "1 of 3 values"),
        ([[-1.0], [2.0]], Flag.NON_POSITIVE, "1 of 2 values"),
    ],
)
def test_unusable_arm_is_named_with_its_problem(boots: list[list[float]], flag: Flag, words: str) -> None:
    side = read_side("patched", boots)
    assert side.flag == flag
    assert side.problem.startswith("patched kernel: ")
    assert words in side.problem


def test_arrays_and_lists_give_the_same_datum() -> None:
    assert read_side("base", [np.array([3.0, 4.0, 5.0]), [2.0]]).arm == read_side("base", [[3.0, 4.0, 5.0], [2.0]]).arm

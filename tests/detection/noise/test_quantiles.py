"""How large A/A changes are, 19 times in 20."""

import math
import random

import pytest

from server.detection.trials.effects import FEWEST_CHANGES, change_95


def test_nineteen_changes_give_the_largest_of_them_whatever_its_direction() -> None:
    logs = [0.001] * 18 + [-0.02]
    assert change_95(logs) == pytest.approx(math.expm1(0.02))


def test_many_changes_leave_one_in_twenty_beyond() -> None:
    logs = [number / 1000 for number in range(1, 100)]
    assert change_95(logs) == pytest.approx(math.expm1(0.095))


def test_few_changes_are_stretched_because_their_spread_is_known_badly() -> None:
    eight, eighteen = change_95([0.01, -0.01] * 4), change_95([0.01, -0.01] * 9)
    # Student's quantiles at 8 and 18 degrees of freedom.
    assert eight == pytest.approx(math.expm1(0.01 * 2.306), rel=1e-3)
    assert eighteen == pytest.approx(math.expm1(0.01 * 2.101), rel=1e-3)


def test_too_few_changes_show_the_largest_and_none_show_nothing() -> None:
    assert change_95([0.02] * (FEWEST_CHANGES - 1)) == pytest.approx(math.expm1(0.02))
    assert change_95([]) == 0.0


@pytest.mark.parametrize("known", [8, 18, 19, 40])
def test_the_next_change_lies_beyond_once_in_twenty_times(known: int) -> None:
    numbers = random.Random(known)  # noqa: S311 (noise, no secret)
    tries = 4000
    beyond = 0
    for _ in range(tries):
        logs = [numbers.gauss(0, 0.01) for _ in range(known)]
        beyond += abs(numbers.gauss(0, 0.01)) > math.log1p(change_95(logs))
    assert 0.04 < beyond / tries < 0.06

"""How alpha is spent over the information."""

import itertools
import math

import numpy as np
import pytest

from server.stats.levels import information, spent


def test_nothing_is_spent_before_the_first_boot_and_all_at_the_end() -> None:
    assert spent(0, 0.05) == 0
    assert spent(1, 0.05) == pytest.approx(0.05)


def test_spending_grows_and_leaves_most_for_the_end() -> None:
    shares = [spent(t, 0.05) for t in np.linspace(0, 1, 17)]
    assert all(early < late for early, late in itertools.pairwise(shares))
    assert spent(0.5, 0.05) < 0.01


def test_gamma_zero_spends_evenly() -> None:
    assert spent(0.3, 0.05, gamma=0) == pytest.approx(0.015)
    assert spent(0.3, 0.05, gamma=1e-9) == pytest.approx(0.015, rel=1e-6)


def test_fractions_outside_are_cut() -> None:
    assert spent(-1, 0.05) == 0
    assert spent(7, 0.05) == pytest.approx(0.05)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_no_number_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        spent(bad, 0.05)
    with pytest.raises(ValueError, match="finite"):
        spent(0.5, 0.05, gamma=bad)


def test_arms_of_equal_size_count_in_full_and_others_as_their_harmonic_mean() -> None:
    assert information(8, 8, 16) == pytest.approx(0.5)
    assert information(4, 5, 16) == pytest.approx(2 / (1 / 4 + 1 / 5) / 16)
    assert information(8, 7, 16) < information(8, 8, 16) < information(8, 9, 16)


def test_no_boots_are_no_information_and_more_than_planned_are_all() -> None:
    assert information(0, 16, 16) == 0
    assert information(20, 20, 16) == 1

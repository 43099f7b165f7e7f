"""How often peculiarities are named where there are none, and where there are."""

import numpy as np
import pytest

from server.stats import Cell, Flag, compare


def unequal(boots: int, runs: int, *, times: float, cells: int) -> float:
    """How often unequal spread is named when the patched kernel has so many times the noise."""
    random = np.random.default_rng(boots)

    def arm(noise: float) -> list[np.ndarray]:
        return list(100 * np.exp(random.normal(0, noise, (boots, 1)) + random.normal(0, noise, (boots, runs))))

    results = compare([Cell(arm(0.01), arm(0.01 * times), "lower", 0.01) for _ in range(cells)])
    return float(np.mean([Flag.UNEQUAL_SPREAD in result.flags for result in results]))


@pytest.mark.parametrize(("boots", "runs"), [(4, 1), (4, 3), (7, 3), (10, 5)])
def test_equal_spread_is_rarely_named_unequal(boots: int, runs: int) -> None:
    assert unequal(boots, runs, times=1.0, cells=1000) < 0.06


@pytest.mark.parametrize("boots", [2, 3])
def test_of_two_or_three_boots_the_spread_is_not_judged(boots: int) -> None:
    assert unequal(boots, 3, times=5.0, cells=100) == 0


def test_three_times_the_spread_is_named() -> None:
    assert unequal(7, 3, times=3.0, cells=300) > 0.9


def test_peculiarities_far_below_the_minimum_effect_are_not_named() -> None:
    """A machine that counts instructions: boots fall into levels that are a hundred-thousandth apart."""
    base = [[4173.90], [4173.94], [4173.90], [4173.94]]
    patched = [[4173.90], [4173.90], [4173.95], [4173.95]]
    quiet = compare([Cell(base, patched, "lower", 0.01, 0.001)])[0]
    strict = compare([Cell(base, patched, "lower", 0.0, 0.001)])[0]
    assert quiet.flags == ()
    assert Flag.BIMODAL in strict.flags

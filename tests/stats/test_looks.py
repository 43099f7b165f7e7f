"""Levels of looks against published boundaries and against simulated Brownian motion."""

import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from server.stats.levels import Level, levels, overall_p, spent

FIVE = (0.2, 0.4, 0.6, 0.8, 1.0)
USUAL = (0.25, 0.375, 0.5, 0.75, 1.0)


def bounds(found: tuple[Level, ...]) -> list[float]:
    return [float(scipy_stats.norm.isf(level.nominal / 2)) for level in found]


def test_a_single_look_has_the_whole_level() -> None:
    assert levels((1.0,), 0.05, -4.0)[0].nominal == pytest.approx(0.05, rel=1e-6)


def test_five_equal_looks_have_the_boundaries_of_hwang_shih_and_decani() -> None:
    """The bounds that other software gives for gamma = -4 at 0.025 on either side."""
    assert bounds(levels(FIVE, 0.05, -4.0)) == pytest.approx([3.25, 2.99, 2.69, 2.37, 2.03], abs=0.006)


def test_early_looks_are_stricter_than_late_ones() -> None:
    nominal = [level.nominal for level in levels(USUAL, 0.05, -4.0)]
    assert nominal == sorted(nominal)
    assert 0.04 < nominal[-1] < 0.05


@pytest.mark.parametrize("fractions", [USUAL, (5 / 16, 7 / 16, 0.97), (0.1, 0.11, 1.0)])
@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.2])
def test_the_looks_together_stop_as_often_as_alpha_says(fractions: tuple[float, ...], alpha: float) -> None:
    generator = np.random.default_rng(3)
    steps = np.sqrt(np.diff([0.0, *fractions]))
    paths = np.cumsum(generator.standard_normal((200_000, len(fractions))) * steps, axis=1)
    stopped = np.any(np.abs(paths / np.sqrt(fractions)) > bounds(levels(fractions, alpha, -4.0)), axis=1)
    granted = spent(fractions[-1], alpha)
    assert np.mean(stopped) == pytest.approx(granted, abs=4 * math.sqrt(granted / 200_000))


def test_an_ended_session_spends_what_is_left() -> None:
    going_on, ended = (levels(USUAL[:3], 0.05, -4.0, ended=end) for end in (False, True))
    assert ended[:2] == going_on[:2]
    assert ended[2].nominal > 0.03 > going_on[2].nominal


@pytest.mark.parametrize("fractions", [(0.5, 0.5), (0.5, 0.4), (0.0, 1.0), (0.5, 1.1), (math.nan,)])
def test_fractions_that_do_not_increase_are_refused(fractions: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="do not increase"):
        levels(fractions, 0.05, -4.0)


def test_no_looks_have_no_levels() -> None:
    assert levels((), 0.05, -4.0) == ()


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_overall_p_is_the_spent_alpha_where_a_look_just_rejects(count: int) -> None:
    found = levels(USUAL[:count], 0.05, -4.0)
    assert found[-1].spent == pytest.approx(spent(USUAL[count - 1], 0.05))
    assert overall_p(found, found[-1].nominal, 0.05) == pytest.approx(found[-1].spent, rel=1e-5)


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_overall_p_is_above_alpha_where_a_look_just_fails_to_reject(count: int) -> None:
    """Ending at this look without rejecting is less extreme than any rejection at a later one."""
    found = levels(USUAL[:count], 0.05, -4.0)
    assert 0.05 <= overall_p(found, found[-1].nominal * 1.001, 0.05) < 0.051


def test_overall_p_of_one_look_is_its_p_value() -> None:
    only = levels((1.0,), 0.05, -4.0)
    assert overall_p(only, 0.3, 0.05) == pytest.approx(0.3)
    assert overall_p(only, 1.0, 0.05) == pytest.approx(1.0)
    assert 0 <= overall_p(only, 0.0, 0.05) < 1e-200


def test_overall_p_grows_with_the_nominal_one() -> None:
    found = levels(USUAL, 0.05, -4.0)
    values = [overall_p(found, p, 0.05) for p in (0.0, 1e-6, 0.01, 0.04, 0.3, 1.0)]
    assert values == sorted(values)
    assert values[0] >= found[-1].spent_before

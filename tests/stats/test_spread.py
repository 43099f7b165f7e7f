import numpy as np
import pytest

from server.stats.changepoints.steps import MOST_EVIDENCE, Scale, contrast
from server.stats.changepoints.timeline import Floats


def noise(seed: int, count: int) -> Floats:
    return np.random.default_rng(seed).standard_normal(count)


def test_difference_and_noise_are_those_of_the_sides() -> None:
    found = contrast(noise(1, 50), 5.0 + noise(2, 50), Scale(1.0))
    assert found.difference == pytest.approx(5.0, abs=0.5)
    assert found.noise == pytest.approx(1.0, rel=0.3)


def test_evidence_grows_with_the_difference_and_has_an_end() -> None:
    left, right = noise(3, 40), noise(4, 40)
    evidence = [contrast(left, right + step, Scale(1.0)).evidence() for step in (1.0, 3.0, 9.0)]
    assert evidence == sorted(evidence)
    assert contrast(left, right + 1e9, Scale(1.0)).evidence() <= MOST_EVIDENCE


def test_few_points_are_less_evidence_than_many() -> None:
    left = noise(5, 50)
    assert (
        contrast(left, 3.0 + noise(6, 4), Scale(1.0)).evidence()
        < contrast(left, 3.0 + noise(6, 40), Scale(1.0)).evidence()
    )


def test_correlated_runs_are_less_evidence() -> None:
    left, right = noise(7, 30), 2.0 + noise(8, 30)
    assert contrast(left, right, Scale(1.0, inflation=3.0)).evidence() < contrast(left, right, Scale(1.0)).evidence()


def test_a_trend_leaves_less_evidence_for_a_step() -> None:
    left, right = noise(7, 50), 2.0 + noise(8, 50)
    evidence = [contrast(left, right, Scale(1.0, trend=trend)).evidence() for trend in (0.0, 0.005, 0.02, 1.0)]
    assert evidence == sorted(evidence, reverse=True)
    assert evidence[-1] > 0.5


def test_a_ramp_is_no_evidence_where_the_timeline_has_such_a_trend() -> None:
    ramp = 0.05 * np.arange(100) + noise(9, 100)
    assert contrast(ramp[:50], ramp[50:], Scale(1.0)).evidence() > 10
    assert contrast(ramp[:50], ramp[50:], Scale(1.0, trend=0.05)).evidence() < 2


def test_a_fall_upon_a_rising_trend_is_no_evidence_for_a_rise() -> None:
    values = 0.1 * np.arange(100) - 3.0 * (np.arange(100) >= 50) + 0.1 * noise(9, 100)
    found = contrast(values[:50], values[50:], Scale(0.1, trend=0.1))
    assert found.difference > 1
    assert found.evidence() == 0


def test_a_trend_too_small_for_any_number_is_none() -> None:
    left, right = noise(7, 50), 2.0 + noise(8, 50)
    assert contrast(left, right, Scale(1.0, trend=1e-300)).t == pytest.approx(contrast(left, right, Scale(1.0)).t)


def test_a_hiccup_does_not_move_the_difference() -> None:
    left, right = noise(9, 40), noise(10, 40)
    spoilt = right.copy()
    spoilt[20] = 1e9
    assert contrast(left, spoilt, Scale(1.0)).difference == pytest.approx(
        contrast(left, right, Scale(1.0)).difference, abs=0.15
    )


def test_three_runs_of_hiccup_and_one_of_return_are_no_evidence() -> None:
    right = np.array([20.0, 21.0, 19.0, 0.0])
    assert contrast(noise(11, 50), right, Scale(1.0)).evidence() == 0.0


def test_a_run_of_one_mode_among_two_is_little_evidence() -> None:
    left = 0.1 * noise(12, 20) + 10.0 * (np.arange(20) % 3 == 0)
    right = 0.1 * noise(13, 6) + 10.0
    assert contrast(left, right, Scale(0.1)).evidence() < 3.0


def test_both_modes_moved_is_evidence() -> None:
    modes = 10.0 * (np.arange(40) % 3 == 0)
    found = contrast(0.1 * noise(14, 40) + modes, 0.1 * noise(15, 40) + modes + 2.0, Scale(0.1))
    assert found.evidence() > 6.0


def test_two_far_points_beside_a_short_side_are_hiccups_and_three_are_a_mode() -> None:
    left, right = 0.01 * np.sin(np.arange(8.0)), 0.1 + 0.01 * np.sin(np.arange(8.0))
    hiccups, modes = left.copy(), left.copy()
    hiccups[[1, 5]] = 0.1
    modes[[1, 3, 5]] = 0.1
    assert contrast(hiccups, right, Scale(0.01)).ceiling == MOST_EVIDENCE
    assert contrast(modes, right, Scale(0.01)).ceiling < MOST_EVIDENCE

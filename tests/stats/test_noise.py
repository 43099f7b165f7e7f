import numpy as np
import pytest

from server.stats.changepoints.timeline import (
    LEAST_NOISE,
    MOST_CORRELATED,
    Floats,
    difference_noise,
    local_trend,
    median,
    run_correlation,
    value_grid,
)


def normal(seed: int, count: int) -> Floats:
    return np.random.default_rng(seed).standard_normal(count)


def test_median_is_that_of_numpy() -> None:
    for values in (normal(1, 7), normal(2, 8)):
        assert median(values) == pytest.approx(float(np.median(values)))


def test_median_of_the_largest_values_does_not_overflow() -> None:
    assert median(np.array([1.6e308, 1.7e308])) == pytest.approx(1.65e308)


def test_noise_is_the_deviation_of_one_point() -> None:
    assert difference_noise(0.02 * normal(3, 2000)) == pytest.approx(0.02, rel=0.1)


def test_steps_hardly_touch_the_noise() -> None:
    values = 0.02 * normal(3, 2000)
    stepped = values + 0.5 * (np.arange(2000) // 100 % 2)
    assert difference_noise(stepped) == pytest.approx(difference_noise(values), rel=0.05)


def test_noise_of_coarse_values_is_at_least_that_of_their_grid() -> None:
    values = np.where(np.arange(100) % 10 == 0, 1.05, 1.0)
    assert difference_noise(values) == pytest.approx(0.05 / np.sqrt(12))


def test_values_that_never_vary_still_have_some_noise() -> None:
    assert difference_noise(np.full(50, 3.0)) == LEAST_NOISE
    assert difference_noise(np.array([3.0])) == LEAST_NOISE


def test_fine_values_have_no_grid() -> None:
    assert value_grid(normal(4, 100)) == 0.0


def test_grid_of_coarse_values_is_their_step() -> None:
    assert value_grid(np.round(normal(5, 200) * 2) / 4) == pytest.approx(0.25)


def test_independent_runs_are_seldom_called_correlated() -> None:
    found = [run_correlation(normal(seed, 150)) for seed in range(40)]
    assert sum(correlation > 0.1 for correlation in found) <= 4


def test_correlated_runs_are_recognised() -> None:
    noise = normal(6, 600)
    values = noise.copy()
    for i in range(1, len(values)):
        values[i] = 0.5 * values[i - 1] + noise[i]
    assert run_correlation(values) == pytest.approx(0.45, abs=0.15)


def test_correlation_ends_where_courses_begin() -> None:
    assert run_correlation(np.repeat([1.0, -1.0], 50)) == MOST_CORRELATED


def test_few_points_have_no_correlation() -> None:
    assert run_correlation(np.ones(5)) == 0.0


def test_trend_is_the_slope_between_the_cuts() -> None:
    values = 0.01 * normal(6, 400) + 0.002 * np.arange(400) + 0.5 * (np.arange(400) >= 200)
    assert local_trend(values, [200], 1.0) == pytest.approx(0.002, rel=0.1)


def test_noise_alone_is_hardly_a_trend() -> None:
    found = [local_trend(normal(seed, 400), [], 1.0) for seed in range(20)]
    assert np.median(found) < 0.01
    assert max(found) < 0.03


def test_a_step_without_a_cut_is_no_trend() -> None:
    values = normal(7, 400) + 5.0 * (np.arange(400) >= 210)
    assert local_trend(values, [], 1.0) < 0.02


def test_modes_are_no_trend() -> None:
    values = normal(8, 400) + 30.0 * (np.random.default_rng(9).random(400) < 0.3)
    assert local_trend(values, [], 1.0) < 0.03


def test_few_points_have_no_trend() -> None:
    assert local_trend(np.arange(7.0), [], 1.0) == 0.0

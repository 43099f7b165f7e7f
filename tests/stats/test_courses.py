import numpy as np

from server.stats.changepoints.steps import step_share
from server.stats.changepoints.timeline import Floats

N = 30


def noise(seed: int) -> Floats:
    return np.random.default_rng(seed).standard_normal(2 * N)


def share(values: Floats) -> float:
    return step_share(values[:N], values[N:], 1.0)


def test_a_step_between_levels_keeps_its_evidence() -> None:
    assert share(noise(1) + 4.0 * (np.arange(2 * N) >= N)) == 1.0


def test_a_ramp_leaves_nothing_of_a_step() -> None:
    assert share(noise(2) + 0.15 * np.arange(2 * N)) == 0.0


def test_a_whole_wave_leaves_nothing_of_a_step() -> None:
    assert share(noise(5) + 3.0 * np.sin((np.arange(2 * N) - N) * np.pi / N)) == 0.0


def test_a_step_upon_a_slope_keeps_a_part() -> None:
    values = noise(3) + 0.1 * np.arange(2 * N) + 6.0 * (np.arange(2 * N) >= N)
    assert 0.0 < share(values) < 1.0


def test_a_fall_upon_a_rise_is_no_evidence_for_a_rise() -> None:
    values = noise(4) + 0.1 * np.arange(2 * N) - 2.0 * (np.arange(2 * N) >= N)
    assert share(values) == 0.0


def test_values_without_noise_are_judged_too() -> None:
    assert share(np.repeat([1.0, 5.0], N)) == 1.0
    assert share(0.1 * np.arange(2 * N, dtype=np.float64)) == 0.0


def test_four_points_a_side_are_enough() -> None:
    values = np.array([0.1, -0.2, 0.0, 0.1, 8.0, 8.1, 7.9, 8.0])
    assert step_share(values[:4], values[4:], 0.2) == 1.0

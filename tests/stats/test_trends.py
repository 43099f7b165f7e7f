import numpy as np

from server.stats.changepoints.nominations import MOST_BLOCKS, breaks
from server.stats.changepoints.timeline import Floats


def noise(seed: int, count: int) -> Floats:
    return np.random.default_rng(seed).standard_normal(count)


def test_the_corner_of_a_smooth_course_is_found() -> None:
    values = np.concatenate([np.linspace(0.0, 10.0, 60), np.linspace(10.0, 2.0, 60)]) + 0.01 * noise(1, 120)
    found = breaks(values)
    assert found is not None
    assert [abs(cut - 60) <= 2 for cut in found] == [True]


def test_a_straight_course_has_no_breaks() -> None:
    assert breaks(np.linspace(1.0, 2.0, 200)) == []


def test_independent_runs_keep_their_level() -> None:
    assert [breaks(noise(seed, 150)) for seed in range(20)] == [None] * 20


def test_a_step_between_noisy_levels_is_no_course() -> None:
    assert breaks(noise(2, 100) + 5.0 * (np.arange(100) >= 40)) is None


def test_a_long_course_is_read_in_blocks() -> None:
    count = 4 * MOST_BLOCKS
    course = np.abs(np.arange(count) - count / 2)
    found = breaks(course)
    assert found is not None
    assert [abs(cut - count / 2) <= 8 for cut in found] == [True]


def test_few_or_equal_values_are_no_course() -> None:
    assert breaks(np.arange(5.0)) is None
    assert breaks(np.ones(100)) is None

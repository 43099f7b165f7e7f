import numpy as np

from server.stats.changepoints.nominations import ALL_POSITIONS, segmentation
from server.stats.changepoints.timeline import Floats

PENALTY = 0.6


def noise(seed: int, count: int) -> Floats:
    return np.random.default_rng(seed).standard_normal(count)


def test_a_clear_step_is_the_only_candidate() -> None:
    values = noise(1, 120) + 6.0 * (np.arange(120) >= 50)
    assert segmentation(values, 1.0).cuts(PENALTY) == [50]


def test_a_long_timeline_is_cut_at_the_same_places() -> None:
    steps = [200, 420, 700]
    values = noise(2, 900) + 6.0 * np.searchsorted(steps, np.arange(900), side="right")
    assert len(values) > ALL_POSITIONS
    assert segmentation(values, 1.0).cuts(PENALTY) == steps


def test_a_single_spike_however_large_makes_no_segment() -> None:
    values = noise(3, 100)
    values[40] = 1e6
    assert segmentation(values, 1.0).cuts(PENALTY) == []


def test_a_higher_penalty_never_gives_more_segments() -> None:
    values = noise(4, 300) + 1.5 * (np.arange(300) // 40 % 2)
    found = segmentation(values, 1.0)
    counts = [len(found.cuts(penalty)) for penalty in (0.2, 0.4, 0.8, 1.6)]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1]


def test_shift_and_scale_of_the_values_do_not_matter() -> None:
    values = noise(5, 150) + 4.0 * (np.arange(150) >= 90)
    assert segmentation(64.0 * values + 4096.0, 64.0).cuts(PENALTY) == segmentation(values, 1.0).cuts(PENALTY)


def test_a_long_course_has_more_levels_than_bins_and_is_still_cut() -> None:
    values = np.linspace(0.0, 3000.0, 1200)
    assert len(segmentation(values, 5.0).cuts(PENALTY)) > 10


def test_one_value_has_no_candidates() -> None:
    assert segmentation(np.array([2.0]), 1.0).cuts(PENALTY) == []

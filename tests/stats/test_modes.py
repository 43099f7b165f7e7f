import numpy as np

from server.stats.comparison.estimates import bimodal


def test_two_groups_far_apart_are_seen() -> None:
    means = np.repeat([0.0, 1.0], [9, 5]) + np.random.default_rng(1).normal(0, 0.05, (50, 14))
    assert bimodal(means).all()


def test_normal_boots_are_seldom_taken_for_two_groups() -> None:
    random = np.random.default_rng(2)
    for boots in (8, 10, 14, 20, 32):
        assert bimodal(random.normal(0, 1, (2000, boots))).mean() < 0.015


def test_one_boot_far_away_is_no_group() -> None:
    means = np.random.default_rng(3).normal(0, 0.01, (50, 14))
    means[:, 3] += 1
    assert not bimodal(means).any()


def test_few_boots_or_equal_ones_have_no_groups() -> None:
    assert not bimodal(np.array([[0.0, 0.0, 1.0, 1.0]])).any()
    assert not bimodal(np.ones((1, 14))).any()

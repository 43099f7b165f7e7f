import numpy as np
import pytest

from server.stats.cells import Cell, padded, shape_of
from server.stats.comparison.estimates import Summaries, summarise


def summarised(base: list[list[float]], patched: list[list[float]]) -> Summaries:
    cell = Cell(base, patched, "lower", 0.01)
    return summarise(padded([cell], shape_of(cell)), shape_of(cell))


def test_values_of_boots_are_their_medians() -> None:
    assert summarised([[5.0, 1.0, 100.0], [2.0, 8.0]], [[7.0]]).values[0] == pytest.approx([5.0, 4.0, 7.0])


def test_means_are_those_of_logarithms_from_a_common_origin() -> None:
    means = summarised([[1.0, 4.0], [16.0]], [[2.0, 2.0]]).means[0]
    assert means / np.log(2) == pytest.approx([1.0, 4.0, 1.0])


def test_squares_inside_boots_are_kept_for_each_arm() -> None:
    within = summarised([[1.0, np.e**2], [5.0, 5.0]], [[3.0]]).within[0]
    assert within == pytest.approx([2.0, 0.0])


def test_one_wild_run_does_not_move_the_mean_of_its_boot() -> None:
    quiet = [[100.0, 101.0, 99.0], [100.5, 99.5, 100.0], [101.0, 100.0, 99.0]]
    wild = [[100.0, 5000.0, 99.0], *quiet[1:]]
    assert summarised(wild, quiet).means[0, 0] == pytest.approx(summarised(quiet, quiet).means[0, 0], abs=0.03)


def test_wild_run_among_equal_ones_counts_nothing() -> None:
    summaries = summarised([[7.0, 7.0, 900.0], [7.0, 7.0, 7.0]], [[7.0, 7.0, 7.0]] * 2)
    assert summaries.means.tolist() == [[0.0] * 4]
    assert summaries.within.tolist() == [[0.0, 0.0]]


def test_normal_values_are_hardly_touched() -> None:
    logs = np.random.default_rng(4).normal(0, 0.02, (2, 7, 3))
    means = summarised(np.exp(logs[0]).tolist(), np.exp(logs[1]).tolist()).means[0]
    plain = logs.mean(axis=2).ravel()
    assert np.mean(np.abs(means - means[0] - plain + plain[0])) < 0.001


def test_equal_values_have_exactly_their_own_mean() -> None:
    assert summarised([[0.1] * 3, [0.1] * 5], [[0.1] * 7] * 2).means.tolist() == [[0.0] * 4]


def test_a_second_mode_of_runs_is_left_where_it_is_in_both_arms() -> None:
    quiet = [[100.0, 101.0, 99.0]] * 3
    modes = [[100.0, 101.0, 130.0], [99.0, 130.0, 101.0], [100.0, 99.0, 101.0]]
    wild = [[100.0, 101.0, 5000.0], *quiet[1:]]
    found, alone = summarised(modes, wild), summarised(quiet, wild)
    logs = np.log([*modes, *wild])
    assert found.means[0] - found.means[0, 0] == pytest.approx(logs.mean(axis=1) - logs[0].mean())
    assert abs(alone.means[0, 3] - alone.means[0, 4]) < 0.03


def test_squares_before_far_values_are_drawn_in_are_kept_beside() -> None:
    summaries = summarised([[7.0, 7.0, 7.0 * np.e], [7.0] * 3], [[7.0] * 3] * 2)
    assert summaries.loose[0] == pytest.approx([2 / 3, 0.0])
    assert summaries.within.tolist() == [[0.0, 0.0]]


def test_the_step_is_the_smallest_distance_of_values_that_repeat() -> None:
    assert summarised([[5.0, 5.5], [5.0]], [[7.0], [7.25, 8.0]]).steps == pytest.approx([0.25])
    assert summarised([[5.0, 5.5], [6.0]], [[7.0], [7.25, 8.0]]).steps.tolist() == [0.0]
    assert summarised([[5.0], [5.0]], [[5.0], [5.0]]).steps.tolist() == [0.0]

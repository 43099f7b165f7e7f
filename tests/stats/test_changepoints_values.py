"""Steps among values of any kind: coarse, missing, without logarithms, tiny, huge, many."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.stats.changepoints.nominations import SHARED, WINDOW, nominate
from server.stats.changepoints.timeline import TimelineValues
from tests.stats.timelines import indices, noise, stepped, steps


def test_coarse_values_are_judged_by_their_grid() -> None:
    rng = np.random.default_rng(11)
    coarse = np.round(40 + 0.4 * rng.standard_normal(150))
    assert indices(coarse) == []
    assert indices(coarse + 3.0 * (np.arange(150) >= 60)) == [60]


def test_constant_values_have_no_steps_and_a_counter_that_jumps_has_one() -> None:
    assert indices(np.full(100, 2168.0)) == []
    assert indices(np.repeat([5762.0, 9871.0], 20)) == [20]


def test_missing_values_are_left_out_and_indices_refer_to_the_given_ones() -> None:
    values = stepped(12, 120, {70: 1.1})
    values[[5, 20, 69, 71, 90]] = [np.nan, np.inf, np.nan, -np.inf, np.nan]
    (step,) = steps(values)
    assert step.index == 70


def test_revisions_are_those_of_the_points() -> None:
    values = stepped(13, 100, {40: 1.1})
    revisions = [3 * i + 7 for i in range(100)]
    ((step,),) = nominate([TimelineValues("test", values, np.array(revisions))])
    assert (step.index, step.revision) == (40, 127)


def test_zeros_and_negative_values_are_judged_on_their_own_scale() -> None:
    values = noise(14, 150) + 6.0 * (np.arange(150) >= 90)
    assert float(values.min()) < 0
    assert indices(values) == [90]


@pytest.mark.parametrize("factor", [2.0**-40, 2.0**40])
def test_the_unit_of_the_values_does_not_matter(factor: float) -> None:
    values = stepped(17, 150, {50: 1.08, 110: 0.95})
    assert indices(values * factor) == indices(values) != []


@pytest.mark.parametrize(
    "values",
    [[], [1.0], [1.0, 2.0], [np.nan] * 20, [np.inf, -np.inf] * 10, [0.0] * 30, [-3.0] * 30, [1.0, 2.0] * 50],
    ids=["none", "one", "two", "missing", "infinite", "zeros", "equal", "alternating"],
)
def test_values_without_a_step_give_none(values: list[float]) -> None:
    assert indices(np.array(values)) == []


@pytest.mark.parametrize(("before", "after"), [(1e-300, 2e-300), (8e307, 1.6e308)])
def test_the_smallest_and_largest_values_are_judged(before: float, after: float) -> None:
    (step,) = steps(np.repeat([before, after], 30))
    assert step.index == 30
    assert step.effect == pytest.approx(np.log(2))


def test_steps_are_found_on_both_sides_of_where_windows_meet() -> None:
    at = {WINDOW - SHARED - 100: 1.1, WINDOW - SHARED // 2: 1.1, WINDOW + 150: 0.9, 2 * WINDOW: 1.1}
    assert indices(stepped(18, 2 * WINDOW + 300, at)) == sorted(at)


def test_a_hundred_thousand_points_are_searched() -> None:
    assert 70_000 in indices(stepped(19, 100_000, {70_000: 1.2}))


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=60), st.floats(0.0, 10.0))
def test_whatever_the_values_steps_are_ordered_finite_and_sure(values: list[float], threshold: float) -> None:
    found = steps(np.array(values, dtype=np.float64), threshold=threshold)
    places = [step.index for step in found]
    assert places == sorted(set(places))
    assert all(0 < place < len(values) for place in places)
    assert all(np.isfinite([step.effect, step.score]).all() for step in found)


def test_step_at_the_seam_of_two_windows_is_one_step() -> None:
    for at in (1798, 1800, 1802):
        for seed in range(3):
            found = indices(stepped(seed, 3600, {at: 1.02}))
            assert [abs(one - at) <= 5 for one in found] == [True]

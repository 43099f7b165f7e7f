import numpy as np

from server.stats.changepoints.steps import STRICT, Cuts, Scale, bends_at, steps_from
from server.stats.changepoints.timeline import Floats


def noise(seed: int, count: int) -> Floats:
    return np.random.default_rng(seed).standard_normal(count)


def places(values: Floats, candidates: list[int], scale: Scale) -> list[int]:
    return [cut.place for cut in steps_from(Cuts(values, scale), candidates, STRICT)]


def test_a_sure_candidate_stays_and_the_others_go() -> None:
    values = 0.01 * noise(1, 100) + 0.05 * (np.arange(100) >= 60)
    assert places(values, [10, 35, 60, 81], Scale(0.01)) == [60]


def test_what_lasts_for_three_points_is_a_hiccup() -> None:
    values = 0.01 * noise(4, 90)
    values[40:43] += 0.3
    assert places(values, [40, 43], Scale(0.01)) == []


def test_what_lasts_for_six_points_is_a_step_and_its_return() -> None:
    values = 0.01 * noise(4, 90)
    values[40:46] += 0.3
    assert places(values, [40, 46], Scale(0.01)) == [40, 46]


def test_a_sure_step_of_half_a_percent_is_not_worth_a_report() -> None:
    values = 0.001 * noise(5, 100) + 0.005 * (np.arange(100) >= 50)
    assert places(values, [50], Scale(0.001)) == []


def test_small_steps_do_not_hide_a_large_one_between_them() -> None:
    """Levels on either side are those next to the step, not a mixture with smaller steps farther away."""
    levels = np.repeat([0.0, 0.006, 0.02, 0.014], 25)
    assert places(0.0005 * noise(7, 100) + levels, [25, 50, 75], Scale(0.0005)) == [50]


def test_what_is_remembered_of_a_cut_is_what_its_points_say() -> None:
    """Neighbours that are farther away than anybody looks change nothing, nearer ones do."""
    values = 0.01 * noise(3, 200) + 0.03 * (np.arange(200) >= 100)
    cuts = Cuts(values, Scale(0.01))
    whole, near = cuts.plain(0, 100, 200), cuts.plain(94, 100, 106)
    assert cuts.plain(20, 100, 180) == whole > near > 0
    assert near == Cuts(values[94:106], Scale(0.01)).plain(0, 6, 12)
    assert cuts.cut(94, 100, 106).difference == Cuts(values[94:106], Scale(0.01)).cut(0, 6, 12).difference


def test_a_ramp_is_no_step() -> None:
    values = 0.01 * noise(8, 60) + 0.002 * np.arange(60)
    assert places(values, [30], Scale(0.01)) == []


def test_every_break_is_held_against_its_neighbouring_segments() -> None:
    values = np.repeat([0.0, 1.0, 3.0], 20) + 0.01 * noise(9, 60)
    first, second = bends_at(values, [20, 40], Scale(0.01))
    assert (round(first.difference, 1), round(second.difference, 1)) == (1.0, 2.0)


def test_a_break_that_only_a_hiccup_made_is_left_out() -> None:
    values = 0.001 * np.arange(60.0)
    values[30:33] += 1.0
    assert bends_at(values, [30, 35], Scale(0.01)) == []

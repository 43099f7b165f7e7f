"""What is a step to a reader, and what is not."""

import numpy as np
import pytest

from server.stats.changepoints.nominations import nominate
from server.stats.changepoints.steps import STRICT
from server.stats.changepoints.timeline import TimelineValues
from tests.stats.timelines import indices, noise, stepped, steps


def test_a_step_of_five_percent_is_found_where_it_is() -> None:
    (step,) = steps(stepped(1, 120, {70: 1.05}))
    assert abs(step.index - 70) <= 1
    assert step.effect == pytest.approx(np.log(1.05), abs=0.01)
    assert step.score > STRICT
    assert step.points == 120 - step.index


def test_a_step_down_has_a_negative_effect() -> None:
    (step,) = steps(stepped(2, 120, {60: 0.9}))
    assert step.effect == pytest.approx(np.log(0.9), abs=0.01)


def test_several_steps_are_found_and_their_points_counted_to_the_next() -> None:
    found = steps(stepped(3, 200, {50: 1.1, 90: 0.9, 150: 1.06}))
    assert [step.index for step in found] == [50, 90, 150]
    assert [step.points for step in found] == [40, 60, 50]


def test_noise_alone_nominates_next_to_nothing() -> None:
    found = [len(steps(stepped(seed, 200, {}))) for seed in range(60)]
    assert sum(found) <= 3


def test_heavy_tails_nominate_next_to_nothing() -> None:
    rng = np.random.default_rng(5)
    found = [len(steps(np.exp(0.01 * rng.standard_t(3, 200)))) for _ in range(40)]
    assert sum(found) <= 3


def test_alternating_modes_nominate_next_to_nothing() -> None:
    rng = np.random.default_rng(6)
    runs = [np.exp(0.003 * rng.standard_normal(150) + 0.08 * (rng.random(150) < 0.35)) for _ in range(40)]
    assert sum(len(steps(values)) for values in runs) <= 3


def test_a_step_under_alternating_modes_is_found() -> None:
    rng = np.random.default_rng(7)
    modes = 0.08 * (rng.random(150) < 0.3)
    (step,) = steps(np.exp(0.003 * rng.standard_normal(150) + modes + 0.05 * (np.arange(150) >= 80)))
    assert abs(step.index - 80) <= 2


def test_a_slow_wave_has_no_steps() -> None:
    waves = np.exp(0.004 * noise(8, 200) + 0.02 * np.sin(np.arange(200) / 8))
    assert indices(waves) == []


def test_hiccups_of_up_to_three_runs_are_no_steps() -> None:
    values = stepped(9, 150, {})
    for at, length in ((30, 1), (60, 2), (100, 3)):
        values[at : at + length] *= 1.3
    assert indices(values) == []


def test_a_clear_step_is_reported_after_four_points() -> None:
    values = stepped(10, 80, {70: 1.15})
    assert indices(values[:73]) == []
    assert indices(values[:74]) == [70]


def test_a_lower_threshold_adds_weak_steps_and_leaves_the_sure_ones() -> None:
    values = stepped(16, 200, {60: 1.012, 130: 1.05}, deviation=0.012)
    strict, lenient = steps(values), steps(values, threshold=2.0)
    assert [step.index for step in strict] == [130]
    weak, sure = lenient
    assert weak.index == pytest.approx(60, abs=5)
    assert weak.score < STRICT
    assert sure == strict[0]


def test_a_course_without_levels_gets_its_breaks_only() -> None:
    values = 100.0 + np.concatenate([np.linspace(0, 50, 80), np.linspace(50, 10, 80)])
    assert indices(values) == [pytest.approx(80, abs=2)]


def test_a_machine_that_drifts_away_has_no_breaks() -> None:
    values = 100.0 + np.concatenate([np.linspace(0, 4, 80), np.linspace(4, 1, 80)]) + 0.05 * noise(20, 160)
    (found,) = nominate([TimelineValues("test", values, np.arange(160), machine="zen4")])
    assert found == []

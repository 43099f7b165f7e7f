"""Minimum effects from a cell's own A/A history."""

import math

import pytest
from pytest_django import DjangoAssertNumQueries

from server.detection.trials.effects import min_effects
from server.lab.models import Machine, Session
from tests.builders import EPOCH, build_build, build_case, build_machine, build_metric
from tests.detection.noise.shown import NIGHT, equal_session, shown_trial

pytestmark = pytest.mark.django_db


def session_in_night(machine: Machine, night: int) -> Session:
    session = equal_session(machine, build_build(), purpose=Session.Purpose.HEALTH)
    session.created_at = EPOCH + night * NIGHT
    session.save()
    return session


def key(session: Session, case: str) -> tuple[int, int, int, int]:
    core_type = session.machine.core_types.get()
    return session.pk, build_case(case).pk, build_metric().pk, core_type.pk


def noisy_nights(machine: Machine, number: int) -> None:
    for night in range(number):
        shown_trial(machine, {"copy": 0.03 * (-1) ** night, "clear": 0.001}, night=night)


def test_a_noisy_cell_asks_for_more_than_one_percent_and_a_quiet_one_does_not() -> None:
    machine = build_machine()
    noisy_nights(machine, 19)
    session = session_in_night(machine, 30)
    assert min_effects([session]) == {key(session, "copy"): pytest.approx(math.expm1(0.03))}


def test_only_what_was_known_when_the_session_was_created_counts() -> None:
    machine = build_machine()
    noisy_nights(machine, 20)
    early, late = session_in_night(machine, 7), session_in_night(machine, 8)
    assert set(min_effects([early, late])) == {key(late, "copy")}


def test_the_noise_of_one_machine_says_nothing_about_another() -> None:
    noisy_nights(build_machine("one"), 20)
    assert min_effects([session_in_night(build_machine("two"), 30)]) == {}


def test_noise_of_more_than_a_year_ago_is_forgotten() -> None:
    machine = build_machine()
    noisy_nights(machine, 20)
    assert min_effects([session_in_night(machine, 400)]) == {}


def test_sessions_on_any_number_of_machines_take_three_queries(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    machines = [build_machine(name) for name in ("one", "two", "three")]
    for machine in machines:
        noisy_nights(machine, 8)
    sessions = [session_in_night(machine, 10) for machine in machines]
    with django_assert_num_queries(3):
        assert len(min_effects(sessions)) == 3
    with django_assert_num_queries(0):
        assert min_effects([]) == {}

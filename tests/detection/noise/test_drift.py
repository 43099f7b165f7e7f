"""Machines that drift are quarantined, once."""

import pytest

from server.detection.models import MachineQuestion, NoiseProfile
from server.detection.on_trial_over import answer_noise
from server.lab import care
from server.lab.hosts.state import change_health
from server.lab.models import Machine, Trial
from tests.builders import build_machine
from tests.detection.noise.played import Nights
from tests.detection.noise.shown import CASES, nights, shown_trial

pytestmark = pytest.mark.django_db


def with_history() -> Nights:
    played = Nights(build_machine())
    played.show(nights(15), answered=False)
    return played


def test_two_nights_of_more_noise_quarantine_the_machine_and_name_its_cells() -> None:
    played = with_history()
    machine = played.machine
    played.show(nights(1, times=6.0, seed=5))
    assert machine.health == Machine.Health.GOOD
    trial = played.show(nights(1, times=6.0, seed=6))
    assert machine.health == Machine.Health.QUARANTINED
    assert "equal kernels differ" in machine.health_reason
    assert "time of case-" in machine.health_reason
    assert "two A/A trials in a row" in machine.health_hold
    question = MachineQuestion.objects.get()
    assert (question.kind, question.machine, question.detail) == ("drift", machine, machine.health_reason)
    assert question.trace == trial.trace


def test_one_noisy_night_between_usual_ones_is_no_drift() -> None:
    played = with_history()
    played.show([*nights(1, times=6.0, seed=5), *nights(2, seed=7)])
    assert played.machine.health == Machine.Health.GOOD
    assert not MachineQuestion.objects.exists()


def test_a_machine_that_stays_as_noisy_is_asked_about_once() -> None:
    played = with_history()
    played.show(nights(2, times=6.0, seed=5))
    with played.now():
        care.release(played.machine, "a new fan, louder and slower", actor="ada")
    played.show(nights(17, times=6.0, seed=8))
    assert played.machine.health == Machine.Health.GOOD
    assert MachineQuestion.objects.count() == 1


def test_a_machine_that_a_person_released_is_held_against_its_new_self() -> None:
    played = with_history()
    played.show(nights(2, times=6.0, seed=5))
    with played.now():
        care.release(played.machine, "a new fan, louder and slower", actor="ada")
    played.show(nights(15, times=6.0, seed=8), answered=False)
    played.show(nights(2, times=40.0, seed=9))
    assert played.machine.health == Machine.Health.QUARANTINED
    assert MachineQuestion.objects.count() == 2


def test_answering_again_asks_nothing_more_and_leaves_a_released_machine_alone() -> None:
    played = with_history()
    machine, trial = played.machine, played.show(nights(2, times=6.0, seed=5))
    with played.now():
        care.release(machine, "looked at", actor="ada")
    answer_noise(trial)
    machine.refresh_from_db()
    assert MachineQuestion.objects.count() == 1
    assert (machine.health, machine.health_hold) == (Machine.Health.GOOD, "")


def test_a_machine_in_somebody_s_hands_stays_there() -> None:
    played = with_history()
    played.show(nights(1, times=6.0, seed=5))
    care.maintain(played.machine, "new memory", actor="ada")
    played.show(nights(1, times=6.0, seed=6))
    assert played.machine.health == Machine.Health.MAINTENANCE
    assert MachineQuestion.objects.get().kind == "drift"


def test_a_drift_is_not_lost_because_other_trouble_came_with_it() -> None:
    """No person has looked: the machine's past is still its own when it is back."""
    played = Nights(build_machine())
    played.show(nights(30), answered=False)
    played.show(nights(1, times=6.0, seed=5))
    with played.now():
        assert change_health(played.machine, Machine.Health.QUARANTINED, "it did not let go of session-7-1")
    played.show(nights(1, times=6.0, seed=6))
    assert not played.machine.is_held
    with played.now():
        assert change_health(played.machine, Machine.Health.GOOD, "health session 8 passed: 4 boots measured")
    played.show(nights(2, times=6.0, seed=5))
    assert played.machine.is_held


def test_a_trial_that_was_not_measured_tells_nothing() -> None:
    machine = build_machine()
    trial = shown_trial(machine, {"copy": 0.5})
    Trial.objects.filter(pk=trial.pk).update(state=Trial.State.FAILED)
    trial.refresh_from_db()
    answer_noise(trial)
    assert not NoiseProfile.objects.exists()


def test_an_answered_trial_is_in_the_profile_of_every_cell() -> None:
    played = Nights(build_machine())
    played.show(nights(2))
    assert sorted(row.case.name for row in NoiseProfile.objects.filter(comparisons=2)) == list(CASES)

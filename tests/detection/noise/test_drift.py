"""Machines that drift are quarantined, once."""

from collections.abc import Mapping, Sequence

import pytest

from server.detection.models import MachineQuestion, NoiseProfile
from server.detection.noise.answering import answer
from server.lab import care
from server.lab.models import Machine, Trial
from tests.builders import build_machine
from tests.detection.noise.shown import CASES, nights, shown_trial

pytestmark = pytest.mark.django_db


def play(machine: Machine, shows: Sequence[Mapping[str, float]], *, answered: int = 2) -> Trial:
    """One A/A trial a night, the last of them answered as they are over; returns the last."""
    for number, logs in enumerate(shows):
        trial = shown_trial(machine, logs, night=number)
        if number >= len(shows) - answered:
            answer(trial)
    machine.refresh_from_db()
    return trial


def test_two_nights_of_more_noise_quarantine_the_machine_and_name_its_cells() -> None:
    machine = build_machine()
    play(machine, nights(16))
    assert machine.health == Machine.Health.GOOD
    play(machine, nights(1, times=6.0, seed=5))
    assert machine.health == Machine.Health.GOOD
    trial = play(machine, nights(1, times=6.0, seed=6))
    assert machine.health == Machine.Health.QUARANTINED
    assert "equal kernels differ" in machine.health_reason
    assert "time of case-" in machine.health_reason
    question = MachineQuestion.objects.get()
    assert (question.kind, question.machine, question.detail) == ("drift", machine, machine.health_reason)
    assert question.trace == trial.trace


def test_one_noisy_night_between_usual_ones_is_no_drift() -> None:
    machine = build_machine()
    play(machine, [*nights(16), *nights(1, times=6.0, seed=5), *nights(2, seed=7)], answered=3)
    assert machine.health == Machine.Health.GOOD
    assert not MachineQuestion.objects.exists()


def test_a_machine_that_stays_as_noisy_is_asked_about_once() -> None:
    machine = build_machine()
    play(machine, [*nights(16), *nights(2, times=6.0, seed=5)])
    care.release(machine, "a new fan, louder and slower", actor="ada")
    play(machine, nights(17, times=6.0, seed=8))
    assert machine.health == Machine.Health.GOOD
    assert MachineQuestion.objects.count() == 1


def test_answering_again_asks_nothing_more_and_leaves_a_released_machine_alone() -> None:
    machine = build_machine()
    trial = play(machine, [*nights(16), *nights(2, times=6.0, seed=5)])
    care.release(machine, "looked at", actor="ada")
    answer(trial)
    machine.refresh_from_db()
    assert MachineQuestion.objects.count() == 1
    assert machine.health == Machine.Health.GOOD


def test_a_machine_in_somebody_s_hands_stays_there() -> None:
    machine = build_machine()
    play(machine, [*nights(16), *nights(1, times=6.0, seed=5)])
    care.maintain(machine, "new memory", actor="ada")
    play(machine, nights(1, times=6.0, seed=6))
    assert machine.health == Machine.Health.MAINTENANCE
    assert MachineQuestion.objects.get().kind == "drift"


def test_a_trial_that_was_not_measured_tells_nothing() -> None:
    machine = build_machine()
    trial = shown_trial(machine, {"copy": 0.5})
    Trial.objects.filter(pk=trial.pk).update(state=Trial.State.FAILED)
    trial.refresh_from_db()
    answer(trial)
    assert not NoiseProfile.objects.exists()


def test_an_answered_trial_is_in_the_profile_of_every_cell() -> None:
    machine = build_machine()
    play(machine, nights(2))
    assert sorted(row.case.name for row in NoiseProfile.objects.filter(comparisons=2)) == list(CASES)

"""The way out of a quarantine for drift, and what its nights count for."""

import pytest

from server.detection.models import MachineQuestion, NoiseProfile
from server.detection.recompute.differences import noise_differences
from server.detection.trials.effects import min_effects
from server.lab import care
from server.lab.hosts.state import change_health
from server.lab.models import Machine, Session
from tests.builders import because, build_build, build_machine
from tests.detection.noise.played import Nights
from tests.detection.noise.shown import equal_session, nights

pytestmark = pytest.mark.django_db


@pytest.fixture
def drifted() -> Nights:
    """A machine in quarantine for drift, after a history of 20 nights."""
    played = Nights(build_machine())
    played.show(nights(20), answered=False)
    played.show(nights(2, times=6.0, seed=5))
    assert played.machine.is_held
    return played


def as_usual(number: int) -> list[dict[str, float]]:
    """Nights as a machine of `nights` has them, none far from the usual."""
    night = {f"case-{letter}": 0.0024 for letter in "abcdef"}
    return [night] * number


def test_two_nights_as_before_release_the_machine_and_answer_its_question(drifted: Nights) -> None:
    drifted.show(as_usual(1))
    assert drifted.machine.is_held
    drifted.show(as_usual(1))
    machine, question = drifted.machine, MachineQuestion.objects.get()
    assert (machine.health, machine.health_hold) == (Machine.Health.GOOD, "")
    assert "as they used to before it drifted" in machine.health_reason
    assert (question.state, question.reason) == (MachineQuestion.State.ANSWERED, machine.health_reason)


def test_one_night_as_before_between_noisy_ones_does_not(drifted: Nights) -> None:
    drifted.show([*as_usual(1), *nights(1, times=6.0, seed=6), *as_usual(1)])
    assert drifted.machine.is_held


def test_nights_that_would_make_no_drift_are_not_yet_as_before(drifted: Nights) -> None:
    """A machine on the border stays where it is, instead of going out and in."""
    drifted.show([{case: 1.4 * log for case, log in night.items()} for night in as_usual(20)])
    assert drifted.machine.is_held
    assert MachineQuestion.objects.count() == 1


def test_a_machine_that_drifts_again_soon_waits_for_a_person(drifted: Nights) -> None:
    drifted.show(as_usual(2))
    drifted.show(nights(2, times=6.0, seed=7))
    assert drifted.machine.health_hold.startswith("lifted by a person")
    drifted.show(as_usual(20))
    assert drifted.machine.is_held
    with drifted.now():
        care.release(drifted.machine, "the disk was full", actor="ada")
    assert drifted.machine.health == Machine.Health.GOOD


def test_one_that_drifts_again_much_later_comes_back_by_itself_again(drifted: Nights) -> None:
    drifted.show(as_usual(2))
    drifted.show(nights(35, seed=3), answered=False)
    drifted.show(nights(2, times=6.0, seed=7))
    assert drifted.machine.is_held
    drifted.show(as_usual(2))
    assert drifted.machine.health == Machine.Health.GOOD
    assert not MachineQuestion.objects.filter(state=MachineQuestion.State.OPEN).exists()


def test_a_machine_with_other_trouble_besides_is_checked_first(drifted: Nights) -> None:
    change_health(drifted.machine, Machine.Health.QUARANTINED, "not back 15 minutes after it was switched off and on")
    assert drifted.machine.is_held
    drifted.show(as_usual(2))
    assert drifted.machine.health == Machine.Health.UNKNOWN


def test_a_person_who_confirmed_the_quarantine_is_not_overruled(drifted: Nights) -> None:
    with drifted.now():
        care.quarantine(drifted.machine, "the fan is broken", actor="ada")
    drifted.show(as_usual(3))
    assert (drifted.machine.health, drifted.machine.health_reason) == ("quarantined", "the fan is broken")


def test_what_a_person_answered_stays_the_answer(drifted: Nights) -> None:
    question = MachineQuestion.objects.get()
    question.advance(MachineQuestion.State.ANSWERED, because("dust"), actor="ada")
    drifted.show(as_usual(2))
    question.refresh_from_db()
    assert (drifted.machine.health, question.reason) == (Machine.Health.GOOD, "dust")


def effects_now(played: Nights) -> dict[str, float]:
    """Minimum effects of a session that is created now, by case."""
    with played.now():
        session = equal_session(played.machine, build_build(), purpose=Session.Purpose.HEALTH)
    return effects_of(session)


def effects_of(session: Session) -> dict[str, float]:
    return {str(key[1]): effect for key, effect in min_effects([session]).items()}


def test_nights_of_a_drift_do_not_raise_minimum_effects(drifted: Nights) -> None:
    drifted.show(nights(8, times=6.0, seed=8))
    assert effects_now(drifted) == {}
    drifted.show(as_usual(2))
    assert drifted.machine.health == Machine.Health.GOOD
    assert effects_now(drifted) == {}
    assert all(row.change_95 < 0.01 for row in NoiseProfile.objects.all())
    assert {row.comparisons for row in NoiseProfile.objects.all()} == {32}
    assert list(noise_differences(drifted.machine)) == []


def test_what_a_machine_shows_after_a_person_released_it_counts(drifted: Nights) -> None:
    with drifted.now():
        care.release(drifted.machine, "that is how it is now", actor="ada")
    drifted.show(nights(12, times=6.0, seed=8))
    assert len(effects_now(drifted)) == 6


def test_minimum_effects_of_a_session_from_before_the_drift_was_known_stay_as_they_were() -> None:
    played = Nights(build_machine())
    played.show(nights(17), answered=False)
    played.show(nights(1, times=20.0, seed=5))
    with played.now():
        session = equal_session(played.machine, build_build(), purpose=Session.Purpose.HEALTH)
    before = effects_of(session)
    assert before, "the first night of the drift counted, as nobody knew better"
    played.show(nights(1, times=20.0, seed=6))
    assert played.machine.is_held
    assert effects_of(session) == before
    assert effects_now(played) == {}

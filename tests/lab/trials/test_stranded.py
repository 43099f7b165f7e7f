"""Sessions of trials whose machine is taken out of service."""

from datetime import timedelta

import pytest
from django.utils import timezone

from server.lab.models import Machine, Session, SessionState, Trial, TrialState
from server.lab.sweep import rescue_stranded
from server.lab.trials.life import more_boots
from tests.builders import because, build_machine, build_trial, build_trial_session

pytestmark = pytest.mark.django_db


def measuring(*machines: Machine, **fields: object) -> Trial:
    return build_trial(state=TrialState.MEASURING, looks=[2, 4], machines=machines, **fields)  # type: ignore[arg-type]


def fall_ill(machine: Machine, days: int) -> None:
    since = timezone.now() - timedelta(days=days)
    Machine.objects.filter(pk=machine.pk).update(health=Machine.Health.QUARANTINED, health_since=since)
    Session.objects.filter(machine=machine).update(state_since=since)


def test_session_moves_to_a_sister_only_where_no_machine_is_named() -> None:
    ill, _well = build_machine("m1"), build_machine("m2")
    free = build_trial_session(measuring(), ill)
    named = build_trial_session(measuring(ill), ill)
    fall_ill(ill, days=0)
    assert rescue_stranded() == (1, 0)
    for session, name in ((free, "m2"), (named, "m1")):
        session.refresh_from_db()
        assert (session.machine.name, session.state) == (name, SessionState.PLANNED)


def test_sister_that_measures_the_trial_already_takes_no_second_session() -> None:
    ill, well = build_machine("m1"), build_machine("m2")
    trial = measuring()
    stranded = build_trial_session(trial, ill)
    build_trial_session(trial, well)
    fall_ill(ill, days=0)
    assert rescue_stranded() == (0, 1)
    stranded.refresh_from_db()
    assert (stranded.state, stranded.reason) == (SessionState.FAILED, "machine m1 is quarantined")


@pytest.mark.parametrize(
    ("others", "days", "state"),
    [
        (0, 2, SessionState.PLANNED),
        (0, 8, SessionState.FAILED),
        (1, 0, SessionState.PLANNED),
        (1, 2, SessionState.FAILED),
    ],
)
def test_named_machine_is_waited_for_longer_if_it_is_the_only_one(others: int, days: int, state: str) -> None:
    ill, well = build_machine("m1"), build_machine("m2")
    trial = measuring(ill, well)
    session = build_trial_session(trial, ill)
    if others:
        build_trial_session(trial, well)
    fall_ill(ill, days)
    rescue_stranded()
    session.refresh_from_db()
    assert session.state == state


def test_noise_is_not_waited_for() -> None:
    ill = build_machine("m1")
    session = build_trial_session(measuring(ill, purpose="noise"), ill)
    fall_ill(ill, days=0)
    assert rescue_stranded() == (0, 1)
    session.refresh_from_db()
    assert session.state == SessionState.FAILED


def test_more_boots_are_not_waited_for_but_what_was_measured_stays() -> None:
    ill = build_machine("m1")
    session = build_trial_session(measuring(ill), ill, state=SessionState.DONE)
    assert more_boots(session, base=2, patched=2, reason=because("1 cell is open"))
    fall_ill(ill, days=0)
    assert rescue_stranded() == (0, 1)
    session.refresh_from_db()
    assert (session.state, session.cut_short) == (SessionState.DONE, True)

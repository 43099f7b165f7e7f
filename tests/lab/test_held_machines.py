"""Machines in a quarantine that no health session lifts."""

from collections.abc import Callable

import pytest

from server.core.reasons import Because
from server.lab import care
from server.lab.attempts.boots import finish_session
from server.lab.attempts.life import open_attempt
from server.lab.hosts.health import judge_health, plan_health_session
from server.lab.hosts.state import change_health
from server.lab.hosts.trouble import give_up_machine
from server.lab.models import Builder, Machine, Session, Trial
from server.lab.scheduling.placement import next_placements, why_waiting
from server.lab.sweep import plan_checks, rescue_stranded
from server.lab.trials.life import plan_trial
from tests.builders import (
    build_build,
    build_health_session,
    build_machine,
    build_revision,
    build_session,
    build_trial,
    build_trial_session,
)
from tests.lab.test_health import a_head, end
from tests.lab.test_machine_command import command

pytestmark = pytest.mark.django_db

HOLD = "lifted by two quiet nights, or by a person"


def held() -> Machine:
    machine = build_machine(last_seen_at="2999-01-01T00:00:00Z")
    assert change_health(machine, Machine.Health.QUARANTINED, "it drifts", hold=HOLD)
    machine.refresh_from_db()
    assert machine.is_held
    return machine


def trial_of_equal_kernels(machine: Machine, **fields: str) -> Trial:
    kernel = build_build(build_revision())
    fields.setdefault("purpose", Trial.Purpose.NOISE)
    return build_trial(kernel.revision, kernel.revision, machines=[machine], **fields)


def session_of_equal_kernels(machine: Machine, *, state: str = Session.State.PLANNED) -> Session:
    return build_trial_session(trial_of_equal_kernels(machine, state=Trial.State.MEASURING), machine, state=state)


def test_no_health_session_is_planned_for_one() -> None:
    build_build(a_head())
    held()
    assert plan_checks() == 0


def test_a_health_session_that_passes_leaves_it_there() -> None:
    machine = held()
    session = build_health_session(machine, state=Session.State.DONE)
    judge_health(session)
    machine.refresh_from_db()
    assert (machine.health, machine.health_reason, machine.health_hold) == ("quarantined", "it drifts", HOLD)


def test_other_trouble_that_is_found_meanwhile_does_not_let_it_out() -> None:
    machine = held()
    session = build_health_session(machine, state=Session.State.FAILED, reason="panic")
    judge_health(session)
    machine.refresh_from_db()
    assert machine.is_held
    assert machine.health_reason.endswith("panic")


@pytest.mark.parametrize(
    ("decide", "health"),
    [
        (care.release, "good"),
        (care.maintain, "maintenance"),
        (care.retire, "retired"),
        (care.quarantine, "quarantined"),
    ],
)
def test_what_a_person_decides_ends_it(decide: Callable[..., None], health: str) -> None:
    machine = held()
    decide(machine, "looked at", actor="ada")
    machine.refresh_from_db()
    assert (machine.health, machine.health_hold) == (health, "")


def test_a_check_that_a_person_asks_for_brings_it_back() -> None:
    build_build(a_head())
    machine = held()
    session = care.check(machine, actor="ada")
    assert session is not None
    assert session == plan_health_session(machine, "again")
    end(session, facts={"uarch": "haswell"})
    machine.refresh_from_db()
    assert machine.health == "good"


def test_the_service_does_not_overrule_a_person_who_confirmed_it_a_moment_ago() -> None:
    machine = held()
    care.quarantine(Machine.objects.get(), "the fan is broken", actor="ada")
    assert not change_health(machine, Machine.Health.GOOD, "as before")
    machine.refresh_from_db()
    assert machine.health == "quarantined"


def test_a_machine_that_does_not_come_back_is_given_up_though_its_hold_ended_a_moment_ago() -> None:
    machine = held()
    care.release(Machine.objects.get(), "dust", actor="ada")
    give_up_machine(machine, "not back after it was switched off and on")
    machine.refresh_from_db()
    assert (machine.health, machine.is_held) == ("quarantined", False)


def test_other_trouble_of_one_that_was_held_a_moment_ago_is_known() -> None:
    before = build_machine()
    assert change_health(Machine.objects.get(), Machine.Health.QUARANTINED, "it drifts", hold=HOLD)
    give_up_machine(before, "not back after it was switched off and on")
    machine = Machine.objects.get()
    assert (machine.health_reason, machine.is_held) == ("not back after it was switched off and on", True)


def test_equal_kernels_are_compared_there_and_nothing_else() -> None:
    machine = held()
    other = trial_of_equal_kernels(machine, purpose=Trial.Purpose.LAYOUT)
    assert plan_trial(trial_id=other.pk) == []
    (session,) = plan_trial(trial_id=trial_of_equal_kernels(machine).pk)
    waiting = build_session(machine=machine)
    assert [one.item for one in next_placements(free_slots=None)] == [session]
    told = why_waiting(waiting)
    assert told is not None
    assert "quarantined: it drifts" in told.reason


def test_a_machine_in_a_plain_quarantine_takes_no_equal_kernels() -> None:
    machine = build_machine(health="quarantined")
    trial = trial_of_equal_kernels(machine)
    assert plan_trial(trial_id=trial.pk) == []
    trial.refresh_from_db()
    assert trial.state == "failed"
    session_of_equal_kernels(machine)
    assert next_placements(free_slots=None) == []


def test_a_waiting_session_of_equal_kernels_stays_there_as_long_as_the_machine_is_held() -> None:
    machine = held()
    session = session_of_equal_kernels(machine)
    stranded = build_session(machine=machine)
    assert rescue_stranded() == (0, 1)
    stranded.refresh_from_db()
    session.refresh_from_db()
    assert (stranded.state, session.state) == ("failed", "planned")
    Machine.objects.filter(pk=machine.pk).update(enabled=False)
    Trial.objects.update(created_at="2000-01-01T00:00:00Z")
    Session.objects.update(state_since="2000-01-01T00:00:00Z", created_at="2000-01-01T00:00:00Z")
    assert rescue_stranded() == (0, 1)


def test_its_boots_are_kept_and_its_session_is_done() -> None:
    machine = held()
    session = session_of_equal_kernels(machine, state=Session.State.DONE)
    Session.objects.filter(pk=session.pk).update(state="running")
    session.refresh_from_db()
    finish_session(session=session)
    assert session.state == "done"


def test_a_session_that_was_under_way_when_the_machine_came_into_plain_quarantine_ends() -> None:
    session = session_of_equal_kernels(build_machine(health="quarantined"), state=Session.State.DONE)
    Session.objects.filter(pk=session.pk).update(state="running")
    session.refresh_from_db()
    finish_session(session=session)
    assert session.state == "failed"
    assert session.reason_code == Because.QUARANTINED


def test_what_was_placed_there_is_withdrawn_when_a_person_took_the_quarantine_over() -> None:
    machine = held()
    session_of_equal_kernels(machine)
    (placement,) = next_placements(free_slots=None)
    care.quarantine(Machine.objects.get(), "the fan is broken", actor="ada")
    assert open_attempt(placement, "jenkins") is None
    assert next_placements(free_slots=None) == []


def test_a_builder_is_never_held() -> None:
    builder = Builder.objects.create(name="big", arches=["x86_64"])
    assert change_health(builder, Builder.Health.QUARANTINED, "disk full")
    assert change_health(builder, Builder.Health.GOOD, "emptied")


def test_the_command_says_what_lifts_it() -> None:
    held()
    assert HOLD in command("machine", "vm-haswell")

"""`manage.py machine` and `manage.py builder`: what people decide, by whom and why."""

import io

import pytest
from django.core.management import CommandError, call_command
from pytest_django.fixtures import Settings

from server.core.models import Transition
from server.lab.attempts.ends import finish_canceled
from server.lab.models import AttemptState, Builder, Machine, PowerCycle, Session
from server.lab.sweep import sweep
from tests.builders import because, build_build, build_health_session, build_machine, build_session
from tests.lab.test_health import a_head
from tests.lab.test_hosts import an_attempt

pytestmark = pytest.mark.django_db


def command(*words: str) -> str:
    out = io.StringIO()
    call_command(*words, stdout=out)
    return out.getvalue()


def the_machine() -> Machine:
    return Machine.objects.get()


def test_it_prints_state_health_and_history() -> None:
    build_machine()
    command("machine", "vm-haswell", "--quarantine", "smells of smoke", "--by", "ada")
    printed = command("machine", "vm-haswell")
    assert "state: waiting for work since" in printed
    assert "(smells of smoke)" in printed
    assert "health good -> quarantined by ada: smells of smoke" in printed
    assert "last seen: never" in printed


def test_quarantine_stops_what_runs_and_has_it_planned_again() -> None:
    machine = build_machine(state="working")
    attempt = an_attempt(build_session(machine=machine, state="running"), AttemptState.RUNNING, agent="a")
    command("machine", "vm-haswell", "--quarantine", "wrong numbers", "--by", "ada")
    attempt.refresh_from_db()
    assert (attempt.state, attempt.losing) == ("canceling", True)
    assert attempt.reason == "vm-haswell was quarantined by ada: wrong numbers"
    assert the_machine().health == "quarantined"


@pytest.mark.parametrize("claimed", [False, True])
def test_quarantine_by_a_person_calls_off_the_check_that_goes_on(*, claimed: bool) -> None:
    machine = build_machine(health="quarantined", health_reason="did not come back")
    session = build_health_session(machine, state="running" if claimed else "planned")
    if claimed:
        an_attempt(session, AttemptState.RUNNING, agent="a")
    command("machine", "vm-haswell", "--quarantine", "smells of smoke", "--by", "ada")
    for attempt in session.attempts.all():
        assert (attempt.state, attempt.losing) == ("canceling", False), "its work is not planned again"
        finish_canceled(attempt, because("stopped"))
    session.refresh_from_db()
    assert session.state == "canceled"
    assert (the_machine().health, the_machine().health_reason) == ("quarantined", "smells of smoke")


def test_maintenance_lets_the_running_session_end() -> None:
    machine = build_machine(state="working")
    attempt = an_attempt(build_session(machine=machine, state="running"), AttemptState.RUNNING, agent="a")
    assert command("machine", "vm-haswell", "--maintenance", "new disk") == "vm-haswell: in somebody's hands\n"
    attempt.refresh_from_db()
    assert attempt.state == "running"


def test_maintenance_calls_off_a_power_cycle_that_nobody_began(settings: Settings) -> None:
    settings.DISPATCHER = "jenkins"
    build_machine(boot_driver="kexec")
    command("machine", "vm-haswell", "--power-cycle", "hangs", "--by", "ada")
    command("machine", "vm-haswell", "--maintenance", "new disk", "--by", "ada")
    assert PowerCycle.objects.get().state == "canceled"
    sweep()
    assert the_machine().state == "offline", "until its node is seen"


@pytest.mark.parametrize(("option", "health"), [("--release", "good"), ("--retire", "retired")])
def test_other_decisions_are_kept_with_reason_and_person(option: str, health: str) -> None:
    build_machine(health="maintenance")
    command("machine", "vm-haswell", option, "as  agreed\n", "--by", "ada")
    assert (the_machine().health, the_machine().health_reason) == (health, "as agreed")
    assert Transition.objects.get(subject="machine-health").actor == "ada"


def test_check_makes_it_unknown_and_plans_a_health_session() -> None:
    build_build(a_head())
    build_machine()
    printed = command("machine", "vm-haswell", "--check", "--by", "ada")
    session = Session.objects.get()
    assert printed == f"vm-haswell is checked by session {session.pk}\n"
    assert (the_machine().health, session.purpose) == ("unknown", "health")


def test_check_without_a_kernel_waits_for_one() -> None:
    build_machine()
    assert "as soon as a kernel for it is built" in command("machine", "vm-haswell", "--check")


def test_power_cycle_is_wanted_or_refused_with_the_reason(settings: Settings) -> None:
    build_machine(boot_driver="kexec")
    with pytest.raises(CommandError, match="the local dispatcher has no control host"):
        command("machine", "vm-haswell", "--power-cycle", "hangs")
    settings.DISPATCHER = "jenkins"
    assert "to be done" in command("machine", "vm-haswell", "--power-cycle", "hangs", "--by", "ada")
    assert PowerCycle.objects.get().reason == "ada: hangs"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("machine", "vm-haswel"), "there is no machine 'vm-haswel'; there are: vm-haswell"),
        (("machine", "vm-haswell", "--quarantine", "  "), "say why"),
        (("machine", "vm-haswell", "--check", "--retire", "old"), "--check and --retire: one of them"),
        (("builder", "big"), "there is no builder 'big'; there are: none"),
        (("machine", "vm-haswell", "--release", "x", "--retire", "y"), "not allowed with argument"),
    ],
)
def test_mistakes_are_told(words: tuple[str, ...], message: str) -> None:
    build_machine()
    with pytest.raises(CommandError, match=message):
        command(*words)
    assert the_machine().health == "good"


def test_builder_has_the_same_but_no_sessions_and_no_switch() -> None:
    builder = Builder.objects.create(name="big")
    command("builder", "big", "--quarantine", "disk full", "--by", "ada")
    builder.refresh_from_db()
    assert (builder.health, builder.health_reason) == ("quarantined", "disk full")
    assert "health good -> quarantined by ada: disk full" in command("builder", "big")
    with pytest.raises(CommandError, match="unrecognized arguments"):
        command("builder", "big", "--check")

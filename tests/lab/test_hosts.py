"""What hosts do and how they are, and that neither is ever out of line with the attempts for long."""

from datetime import UTC, datetime, timedelta

import pytest
import time_machine
from pytest_django.fixtures import Settings

from server.core.models import Transition
from server.lab.hosts.state import (
    HostHello,
    change_health,
    change_state,
    follow_attempt,
    mend_states,
    note_hello,
    note_sightings,
)
from server.lab.models import Attempt, AttemptState, Builder, Machine, PowerCycle, Session
from server.lab.port import HostSighting
from tests.builders import build_build, build_machine, build_session

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _controller(settings: Settings) -> None:
    settings.DISPATCHER = "jenkins"


def an_attempt(session: Session, state: str = AttemptState.QUEUED, **fields: object) -> Attempt:
    key = f"session-{session.pk}-{session.attempts.count() + 1}"
    values = {
        "session": session,
        "machine": session.machine,
        "adapter": "jenkins",
        "slots": 1,
        "state": state,
        **fields,
    }
    return Attempt.objects.create(key=key, number=1, **values)


def state_of(machine: Machine) -> str:
    machine.refresh_from_db()
    return machine.state


def test_change_is_won_by_one_and_leaves_a_line_in_the_audit_log() -> None:
    machine = build_machine()
    other = Machine.objects.get(pk=machine.pk)
    assert change_state(machine, "reserved", "session-1-1", trace="b1946ac92492d234")
    assert not change_state(other, "offline"), "it was read before"
    assert not change_state(machine, "reserved"), "it is there"
    line = Transition.objects.get(subject="machine-state")
    assert (line.before, line.after, line.reason, line.trace) == ("idle", "reserved", "session-1-1", "b1946ac92492d234")
    assert (machine.state, machine.state_reason) == ("reserved", "session-1-1")


def test_health_names_who_decided_and_is_apart_from_state() -> None:
    builder = Builder.objects.create(name="big", state="working")
    assert change_health(builder, "quarantined", "smells of smoke", actor="ada")
    builder.refresh_from_db()
    assert (builder.state, builder.health, builder.health_reason) == ("working", "quarantined", "smells of smoke")
    assert Transition.objects.get(subject="builder-health").actor == "ada"


def test_another_reason_is_noted_and_does_not_begin_another_quarantine() -> None:
    machine = build_machine(health="quarantined", health_reason="no hello")
    since = machine.health_since
    assert change_health(machine, "quarantined", "health session 3: panic")
    assert not change_health(machine, "quarantined", "health session 3: panic")
    machine.refresh_from_db()
    assert (machine.health_reason, machine.health_since) == ("health session 3: panic", since)


@pytest.mark.parametrize("health", ["maintenance", "retired"])
def test_service_never_touches_what_is_in_somebodys_hands(health: str) -> None:
    machine = build_machine(health=health)
    assert not change_health(machine, "quarantined", "lost three attempts")
    assert change_health(machine, "good", "mended", actor="ada")


def test_machine_that_boots_itself_follows_its_attempt_until_it_says_hello() -> None:
    machine = build_machine(boot_driver="kexec")
    attempt = an_attempt(build_session(machine=machine))
    follow_attempt(attempt)
    assert state_of(machine) == "reserved"
    Attempt.objects.filter(pk=attempt.pk).update(arrived_at=NOON)
    follow_attempt(attempt)
    assert state_of(machine) == "working"
    attempt.refresh_from_db()
    attempt.advance(AttemptState.RUNNING, agent="a")
    attempt.advance(AttemptState.DONE)
    follow_attempt(attempt)
    assert state_of(machine) == "returning"
    note_hello(machine, HostHello(boot_id="1", safe=False))
    note_hello(machine, HostHello(boot_id="1", safe=True, key=attempt.key))
    assert state_of(machine) == "returning", "in a kernel under test, or at work"
    note_hello(machine, HostHello(boot_id="2", safe=True))
    assert state_of(machine) == "idle"
    assert (machine.boot_id, machine.safe) == ("2", True)
    states = Transition.objects.filter(subject="machine-state").values_list("after", flat=True)
    assert list(states) == ["reserved", "working", "returning", "idle"]


@pytest.mark.parametrize(("driver", "adapter"), [("qemu", "jenkins"), ("kexec", "local")])
def test_machine_that_stays_in_sight_is_idle_at_once(settings: Settings, driver: str, adapter: str) -> None:
    settings.DISPATCHER = adapter
    machine = build_machine(boot_driver=driver)
    attempt = an_attempt(build_session(machine=machine), AttemptState.RUNNING, agent="a", adapter=adapter)
    follow_attempt(attempt)
    assert state_of(machine) == "working"
    attempt.advance(AttemptState.DONE)
    follow_attempt(attempt)
    assert state_of(machine) == "idle"


def test_attempt_that_never_arrived_leaves_its_machine_idle() -> None:
    machine = build_machine(boot_driver="kexec")
    attempt = an_attempt(build_session(machine=machine))
    follow_attempt(attempt)
    attempt.advance(AttemptState.LOST)
    follow_attempt(attempt)
    assert state_of(machine) == "idle"


def test_builder_works_as_long_as_one_of_its_builds_does() -> None:
    builder = Builder.objects.create(name="big", capacity=2)
    both = [
        Attempt.objects.create(
            key=f"build-{n}-1", number=1, build=build_build(state="dispatched"), builder=builder, adapter="jenkins",
            slots=1, state=AttemptState.RUNNING, agent="a",
        )
        for n in (1, 2)
    ]  # fmt: skip
    for attempt, expected in zip(both, ("working", "idle"), strict=True):
        attempt.advance(AttemptState.DONE)
        follow_attempt(attempt)
        builder.refresh_from_db()
        assert builder.state == expected


def test_sweep_mends_states_that_a_killed_process_left() -> None:
    left, held = build_machine("left", state="working"), build_machine("held")
    an_attempt(build_session(machine=held))
    Builder.objects.create(name="big", state="reserved")
    mend_states()
    assert (state_of(left), state_of(held)) == ("idle", "reserved")
    assert Builder.objects.get().state == "idle"
    lines = Transition.objects.count()
    mend_states()
    assert Transition.objects.count() == lines


def test_idle_hosts_go_offline_and_come_back_with_their_nodes() -> None:
    machine, busy = build_machine("m1", node="node-1"), build_machine("m2", state="working")
    builder = Builder.objects.create(name="big")
    note_sightings(
        {"node-1": HostSighting(connected=False, detail="ping timed out"), "m2": HostSighting(connected=False)}
    )
    assert (state_of(machine), machine.state_reason) == ("offline", "ping timed out")
    assert state_of(busy) == "working", "its lease tells"
    builder.refresh_from_db()
    assert (builder.state, builder.state_reason) == ("offline", "no node big")
    with time_machine.travel(NOON, tick=False):
        note_sightings({"node-1": HostSighting(connected=True), "big": HostSighting(connected=True)})
    assert (state_of(machine), machine.last_seen_at) == ("idle", NOON)
    builder.refresh_from_db()
    assert (builder.state, builder.last_seen_at) == ("idle", NOON)


def test_look_that_shows_nothing_changes_nothing(settings: Settings) -> None:
    machine = build_machine()
    note_sightings({})
    settings.DISPATCHER = "local"
    note_sightings({"another": HostSighting(connected=True)})
    assert state_of(machine) == "idle"


def test_connection_counts_after_a_power_cycle_once_it_must_be_a_new_one() -> None:
    machine = build_machine(boot_driver="kexec", state="power-cycling")
    cycle = PowerCycle.objects.create(machine=machine, state="running")
    note_hello(machine, HostHello(safe=True))
    assert state_of(machine) == "power-cycling", "it was not switched off yet"
    with time_machine.travel(NOON, tick=False) as traveller:
        cycle.advance("done")
        seen = {machine.name: HostSighting(connected=True)}
        note_sightings(seen)
        assert state_of(machine) == "power-cycling"
        traveller.shift(timedelta(minutes=6))
        note_sightings(seen)
    assert state_of(machine) == "idle"


def test_site_that_went_back_to_the_local_dispatcher_has_no_hosts_away(settings: Settings) -> None:
    machine = build_machine(state="offline")
    settings.DISPATCHER = "local"
    mend_states()
    assert state_of(machine) == "idle"

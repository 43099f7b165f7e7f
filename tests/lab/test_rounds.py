"""How a round moves attempts: deadlines, leases, arrivals, stopping, and work that nobody needs any more."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
import time_machine
from pytest_django.fixtures import Settings

from server.builds.models import Build, BuildState
from server.lab import rounds
from server.lab.attempts import ends, life
from server.lab.attempts.arrivals import arrive
from server.lab.hosts.state import change_health
from server.lab.models import Attempt, AttemptState, Builder, Machine, Session, SessionState
from server.lab.port import DispatchError, Observed, Sightings, Work
from server.lab.rounds import hosts_to_hold
from server.lab.scheduling.placement import Placement, next_placements
from server.lab.sweep import stop_needless
from tests.builders import because, build_build, build_machine, build_series, build_session
from tests.lab.test_attempts import RememberingDispatcher

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
AGENT = "agent-one"


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> RememberingDispatcher:
    port = RememberingDispatcher()
    monkeypatch.setattr(rounds, "dispatcher", lambda: port)
    return port


def placed(boot_driver: str = "qemu") -> Attempt:
    build_session(build_series(), build_machine(boot_driver=boot_driver))
    rounds.place_work()
    return the_attempt()


def the_attempt() -> Attempt:
    return Attempt.objects.select_related("build", "builder", "session__machine", "session__series").get()


def round_at(moment: datetime, *, seen: Observed, port: RememberingDispatcher) -> Attempt:
    port.seen[the_attempt().key] = seen
    with time_machine.travel(moment, tick=False):
        rounds.reconcile_attempts()
    return the_attempt()


@pytest.mark.parametrize(
    ("seen", "after_seconds", "state"),
    [
        (Observed.LEFT, 30, "running"),
        (Observed.ABSENT, 30, "running"),
        (Observed.UNSURE, 30, "running"),
        (Observed.HANDED_OVER, 30, "running"),
        (Observed.ENDED, 30, "lost"),
        (Observed.LEFT, 70, "lost"),
        (Observed.ABSENT, 70, "lost"),
        (Observed.UNSURE, 70, "running"),
        (Observed.ALIVE, 70, "running"),
        (Observed.HANDED_OVER, 70, "running"),
        (Observed.HANDED_OVER, 400, "lost"),
        (Observed.ALIVE, 400, "running"),
        (Observed.ALIVE, 1900, "canceling"),
    ],
)
def test_lease_is_believed_before_what_the_dispatcher_says(
    port: RememberingDispatcher, seen: Observed, after_seconds: int, state: str
) -> None:
    with time_machine.travel(NOON, tick=False):
        life.claim_attempt(placed(), AGENT)
    row = round_at(NOON + timedelta(seconds=after_seconds), seen=seen, port=port)
    # What is to be stopped is stopped in the same round, where its dispatcher has nothing of it any more.
    assert row.state == ("lost" if state == "canceling" else state)
    assert (port.canceled == [row.key]) is (state == "canceling")


def test_heartbeat_during_a_round_keeps_the_attempt(
    port: RememberingDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    with time_machine.travel(NOON, tick=False):
        life.claim_attempt(placed(), AGENT)
    port.seen[the_attempt().key] = Observed.LEFT
    look = port.look
    with time_machine.travel(NOON + timedelta(minutes=2), tick=False):

        def look_and_hear(works: object) -> object:
            life.renew_lease(attempt=the_attempt(), agent=AGENT, progress="")
            return look(works)  # type: ignore[arg-type]  # (passed on as it came)

        monkeypatch.setattr(port, "look", look_and_hear)
        rounds.reconcile_attempts()
    assert the_attempt().state == AttemptState.RUNNING


@pytest.mark.parametrize("seen", [Observed.WAITING, Observed.ALIVE, Observed.UNSURE])
def test_attempt_that_nobody_claims_is_stopped_and_its_work_planned_again(
    port: RememberingDispatcher, seen: Observed
) -> None:
    with time_machine.travel(NOON, tick=False):
        placed()
    assert round_at(NOON + timedelta(minutes=29), seen=seen, port=port).state == AttemptState.QUEUED
    row = round_at(NOON + timedelta(minutes=31), seen=seen, port=port)
    assert (row.state, port.canceled) == (AttemptState.LOST, [row.key])
    assert "no agent came for it" in row.reason
    assert Session.objects.get().state == SessionState.PLANNED


def test_claimed_attempt_that_beats_and_never_ends_is_stopped(port: RememberingDispatcher) -> None:
    with time_machine.travel(NOON, tick=False):
        life.claim_attempt(placed(), AGENT)
        life.allow_time(the_attempt(), boot_seconds=180)
    deadline = the_attempt().deadline_at
    assert deadline == NOON + timedelta(hours=1) + 8 * timedelta(minutes=18)
    with time_machine.travel(NOON + timedelta(hours=1), tick=False):
        life.claim_attempt(the_attempt(), AGENT)
        life.allow_time(the_attempt(), boot_seconds=180)
    assert the_attempt().deadline_at == deadline
    late = deadline + timedelta(seconds=1)
    with time_machine.travel(late, tick=False):
        life.renew_lease(attempt=the_attempt(), agent=AGENT, progress="for ever")
    row = round_at(late, seen=Observed.ALIVE, port=port)
    assert (row.state, row.losing) == (AttemptState.CANCELING, True)
    row = round_at(late + timedelta(seconds=61), seen=Observed.LEFT, port=port)
    assert row.state == AttemptState.LOST


def test_dispatcher_that_does_not_answer_changes_nothing(
    port: RememberingDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    with time_machine.travel(NOON, tick=False):
        life.claim_attempt(placed(), AGENT)

    def silent(_works: object) -> object:
        raise DispatchError("away", "no answer", permanent=False)

    monkeypatch.setattr(port, "look", silent)
    with time_machine.travel(NOON + timedelta(days=3), tick=False):
        assert not rounds.reconcile_attempts()
        assert not rounds.run_round()
    assert the_attempt().state == AttemptState.RUNNING


def test_permanent_trouble_gives_the_attempt_up(port: RememberingDispatcher) -> None:
    build_build(state=BuildState.WANTED)
    port.error = DispatchError("lost", "triggered 3 times")
    rounds.place_work()
    assert (the_attempt().state, the_attempt().reason) == (AttemptState.LOST, "triggered 3 times")
    assert Build.objects.get().state == BuildState.WANTED


def test_machine_that_boots_itself_is_held_from_arrival_to_its_return(port: RememberingDispatcher) -> None:
    row = placed("kexec")
    assert hosts_to_hold([row]) == {}
    row.arrived_at = NOON
    assert hosts_to_hold([row]) == {"vm-haswell": row.key}
    Machine.objects.update(state=Machine.State.RETURNING)
    assert hosts_to_hold([]) == {"vm-haswell": "returning"}
    Machine.objects.update(state=Machine.State.IDLE)
    assert hosts_to_hold([]) == {}


@pytest.mark.parametrize(
    ("seen", "state", "machine_state"),
    [
        (Observed.LEFT, "lost", "idle"),
        (Observed.ABSENT, "queued", "working"),
        (Observed.HANDED_OVER, "queued", "working"),
    ],
)
def test_build_that_fails_after_its_arrival_leaves_the_machine_where_it_was(
    port: RememberingDispatcher, seen: Observed, state: str, machine_state: str
) -> None:
    with time_machine.travel(NOON, tick=False):
        row = placed("kexec")
        arrive(row, agent=AGENT, host="box")
    row = round_at(NOON + timedelta(minutes=2), seen=seen, port=port)
    assert (row.state, Machine.objects.get().state) == (state, machine_state)


def test_machine_in_quarantine_is_let_go_of_for_its_health_session(port: RememberingDispatcher) -> None:
    row = placed("kexec")
    Machine.objects.update(health=Machine.Health.QUARANTINED)
    assert hosts_to_hold([]) == {"vm-haswell": "quarantine"}
    assert hosts_to_hold([row]) == {}


def test_second_dispatcher_opens_nothing_for_a_machine_that_is_taken() -> None:
    machine = build_machine()
    first, second = (build_session(build_series(), machine) for _ in range(2))
    assert life.open_attempt(Placement(first, machine, 1), "a") is not None
    assert life.open_attempt(Placement(second, machine, 1), "b") is None
    stale = Session.objects.get(pk=first.pk)
    stale.state = SessionState.PLANNED
    assert life.open_attempt(Placement(stale, machine, 1), "b") is None
    second.refresh_from_db()
    assert second.state == SessionState.PLANNED


def test_attempt_whose_work_has_its_result_is_stopped_before_it_begins(port: RememberingDispatcher) -> None:
    build = build_build(state=BuildState.WANTED)
    rounds.place_work()
    Build.objects.filter(pk=build.pk).update(state=BuildState.FAILED, reason="out of the spool")
    stop_needless()
    rounds.reconcile_attempts()
    assert (the_attempt().state, the_attempt().reason) == (AttemptState.CANCELED, "out of the spool")


def test_result_that_comes_while_the_attempt_is_stopped_counts(port: RememberingDispatcher) -> None:
    build = build_build(state=BuildState.WANTED)
    rounds.place_work()
    life.claim_attempt(the_attempt(), AGENT)
    ends.cancel_attempt(the_attempt(), because("too long"), losing=True)
    Build.objects.filter(pk=build.pk).update(state=BuildState.FAILED)
    ends.end_attempt(attempt=the_attempt(), agent=AGENT, outcome="failed", reason="mm/x.c:1: error")
    assert the_attempt().state == AttemptState.DONE


def test_local_builder_is_used_where_no_controller_is(port: RememberingDispatcher, settings: Settings) -> None:
    build_build(state=BuildState.WANTED)
    rounds.place_work()
    builder = the_attempt().builder
    assert builder is not None
    assert (builder.name, Builder.objects.get().state) == ("local-builder", Builder.State.RESERVED)


def test_session_that_moved_to_a_sister_after_the_decision_is_not_opened_on_its_old_machine() -> None:
    session = build_session()
    (placement,) = next_placements(free_slots=None)
    Session.objects.filter(pk=session.pk).update(machine=build_machine("sister"))
    assert life.open_attempt(placement, "local") is None
    session.refresh_from_db()
    assert (session.state, Attempt.objects.count()) == ("planned", 0)


def test_machine_that_a_person_took_out_after_the_decision_gets_nothing() -> None:
    session = build_session()
    (placement,) = next_placements(free_slots=None)
    change_health(Machine.objects.get(), "quarantined", "smells of smoke", actor="ada")
    assert life.open_attempt(placement, "local") is None
    session.refresh_from_db()
    assert (session.state, Attempt.objects.count(), Machine.objects.get().state) == ("planned", 0, "idle")


def test_look_that_takes_long_takes_nothing_from_placing(
    port: RememberingDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        build_session(build_series(), build_machine(f"vm-{number}"))
    monkeypatch.setattr(port, "is_local", False, raising=False)
    monkeypatch.setattr(RememberingDispatcher, "slots", None)
    monkeypatch.setattr(RememberingDispatcher, "steps_seconds", 0.2)
    now = [0.0]
    monkeypatch.setattr("server.lab.rounds.time.monotonic", lambda: now[0])
    look, submit = port.look, port.submit

    def slow_look(works: Sequence[Work]) -> Sightings:
        now[0] += 5
        return look(works)

    def slow_submit(work: Work) -> None:
        now[0] += 0.15
        submit(work)

    monkeypatch.setattr(port, "look", slow_look)
    monkeypatch.setattr(port, "submit", slow_submit)
    assert rounds.run_round(), "the third is left to the next round"
    assert Attempt.objects.count() == 2


def test_key_is_never_given_out_again(port: RememberingDispatcher) -> None:
    session = build_session(build_series(), build_machine())
    for number in (1, 2, 3):
        session.refresh_from_db()
        attempt = life.open_attempt(Placement(session, session.machine, 1), "any")
        assert attempt is not None
        assert attempt.number == number
        ends.lose_attempt(attempt, because("lost"))
        session.attempts.filter(number=number - 1).delete()

"""Placing, claiming, losing and ending attempts, with a dispatcher that only remembers."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import pytest
import time_machine
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django.fixtures import Settings

from server.builds.models import Build, BuildState
from server.core.access.tokens import find_token, issue_token
from server.core.errors import DomainError
from server.core.models import ApiToken, Transition
from server.lab import rounds
from server.lab.attempts import ends, life
from server.lab.dispatch.local import LocalDispatcher
from server.lab.models import Attempt, AttemptState, BootState, Machine, Session, SessionState
from server.lab.port import DispatchError, Observed, Sighting, Sightings, Work
from server.lab.sweep import cancel_superseded
from server.sources.models import Series, SeriesState
from tests.builders import (
    because,
    build_attempt,
    build_build,
    build_builder,
    build_machine,
    build_series,
    build_session,
)

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


class RememberingDispatcher(LocalDispatcher):
    """A port that starts nothing; the test says what it sees."""

    name = "remembering"

    def __init__(self) -> None:
        self.submitted: list[str] = []
        self.canceled: list[str] = []
        self.seen: dict[str, Observed] = {}
        self.error: DispatchError | None = None

    def submit(self, work: Work) -> None:
        if self.error:
            raise self.error
        self.submitted.append(work.key)
        self.seen[work.key] = Observed.ALIVE

    def look(self, works: Sequence[Work]) -> Sightings:
        return Sightings({work.key: Sighting(self.seen.get(work.key, Observed.ABSENT)) for work in works})

    def cancel(self, work: Work) -> bool:
        self.canceled.append(work.key)
        return True

    def hold(self, hosts: Mapping[str, str]) -> frozenset[str]:
        return frozenset(hosts)


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> RememberingDispatcher:
    port = RememberingDispatcher()
    monkeypatch.setattr(rounds, "dispatcher", lambda: port)
    return port


def the_attempt() -> Attempt:
    return Attempt.objects.select_related("build", "session__machine", "session__series").get()


def test_wanted_build_is_placed_once(port: RememberingDispatcher) -> None:
    build = build_build(state=BuildState.WANTED)
    rounds.place_work()
    rounds.place_work()
    assert port.submitted == [f"build-{build.pk}-1"]
    build.refresh_from_db()
    assert build.state == BuildState.DISPATCHED
    assert the_attempt().state == AttemptState.QUEUED


def test_build_takes_the_whole_host(port: RememberingDispatcher, settings: Settings) -> None:
    settings.LOCAL_SLOTS = 2
    build_build(state=BuildState.WANTED)
    second = build_build(state=BuildState.WANTED)
    rounds.place_work()
    second.refresh_from_db()
    assert second.state == BuildState.WANTED


def test_counting_machines_share_the_host_and_wall_clock_machines_do_not(
    port: RememberingDispatcher, settings: Settings
) -> None:
    settings.LOCAL_SLOTS = 2
    series = build_series()
    for name, clock in (("vm-a", "instructions"), ("vm-b", "instructions"), ("vm-c", "wall")):
        build_session(series, build_machine(name, clock=clock, virtual=True))
    rounds.place_work()
    assert len(port.submitted) == 2
    states = dict(Session.objects.values_list("machine__name", "state"))
    assert states == {"vm-a": "dispatched", "vm-b": "dispatched", "vm-c": "planned"}


def test_machine_runs_one_session_at_a_time(port: RememberingDispatcher) -> None:
    machine = build_machine(clock="instructions")
    build_session(build_series(), machine)
    build_session(build_series(), machine)
    rounds.place_work()
    rounds.place_work()
    assert len(port.submitted) == 1


def test_quarantined_machine_gets_no_session(port: RememberingDispatcher) -> None:
    build_session(machine=build_machine(health=Machine.Health.QUARANTINED))
    rounds.place_work()
    assert port.submitted == []


def test_failed_submit_is_tried_again(port: RememberingDispatcher) -> None:
    build_build(state=BuildState.WANTED)
    port.error = DispatchError("busy", "no room", permanent=False)
    rounds.place_work()
    assert the_attempt().state == AttemptState.SUBMITTING
    port.error = None
    rounds.reconcile_attempts()
    assert the_attempt().state == AttemptState.QUEUED
    assert len(port.submitted) == 1


def test_attempt_found_running_after_a_lost_worker_is_adopted(port: RememberingDispatcher) -> None:
    build = build_build(state=BuildState.WANTED)
    port.error = DispatchError("killed", "worker died here", permanent=False)
    rounds.place_work()
    port.error = None
    port.seen[f"build-{build.pk}-1"] = Observed.ALIVE
    rounds.reconcile_attempts()
    assert the_attempt().state == AttemptState.QUEUED
    assert port.submitted == []


def test_dead_agent_returns_build_to_queue_as_a_new_attempt(port: RememberingDispatcher) -> None:
    with time_machine.travel(NOON, tick=False) as traveller:
        build = build_build(state=BuildState.WANTED)
        rounds.place_work()
        life.claim_attempt(the_attempt(), "agent-one")
        port.seen[f"build-{build.pk}-1"] = Observed.ENDED
        rounds.reconcile_attempts()
        build.refresh_from_db()
        assert build.state == BuildState.WANTED
        rounds.place_work()
        assert len(port.submitted) == 1, "it waits a second before it is tried again"
        traveller.shift(timedelta(seconds=1))
        rounds.place_work()
    assert port.submitted == [f"build-{build.pk}-1", f"build-{build.pk}-2"]
    assert [t.after for t in Transition.objects.filter(subject="build", subject_id=build.pk)] == [
        "wanted", "dispatched", "running", "wanted", "dispatched",
    ]  # fmt: skip


def test_agent_just_started_is_not_lost(port: RememberingDispatcher) -> None:
    with time_machine.travel(NOON, tick=False) as traveller:
        build = build_build(state=BuildState.WANTED)
        rounds.place_work()
        port.seen[f"build-{build.pk}-1"] = Observed.ABSENT
        traveller.shift(timedelta(seconds=5))
        rounds.reconcile_attempts()
        assert the_attempt().state == AttemptState.QUEUED
        traveller.shift(timedelta(seconds=6))
        rounds.reconcile_attempts()
        assert the_attempt().state == AttemptState.LOST


def test_silent_agent_is_canceled_and_its_work_planned_again(port: RememberingDispatcher) -> None:
    with time_machine.travel(NOON, tick=False) as traveller:
        session = build_session()
        rounds.place_work()
        life.claim_attempt(the_attempt(), "agent-one")
        traveller.shift(timedelta(minutes=10))
        rounds.reconcile_attempts()
        assert port.canceled == [], "an outage of the service is no reason to kill an agent"
        traveller.shift(timedelta(minutes=30))
        rounds.reconcile_attempts()
    assert port.canceled == [f"session-{session.pk}-1"]
    session.refresh_from_db()
    assert session.state == SessionState.PLANNED


def test_work_without_progress_is_given_up(port: RememberingDispatcher) -> None:
    with time_machine.travel(NOON, tick=False) as traveller:
        build = build_build(state=BuildState.WANTED)
        for number in range(1, ends.MAX_FRUITLESS_ATTEMPTS + 1):
            traveller.shift(timedelta(minutes=1))
            rounds.place_work()
            attempt = Attempt.objects.select_related("build", "session").get(key=f"build-{build.pk}-{number}")
            ends.lose_attempt(attempt, because("power cut"))
    build.refresh_from_db()
    assert build.state == BuildState.FAILED
    assert "power cut" in build.reason


def test_machine_whose_clock_is_wrong_is_given_up_too(port: RememberingDispatcher) -> None:
    with time_machine.travel(NOON, tick=False) as traveller:
        session = build_session()
        session.boots.filter(position=0).update(
            state=BootState.FAILED, state_since=NOON, ended_at=NOON + timedelta(days=3650)
        )
        for number in range(1, ends.MAX_FRUITLESS_ATTEMPTS + 1):
            traveller.shift(timedelta(minutes=1))
            rounds.place_work()
            attempt = Attempt.objects.select_related("build", "session").get(key=f"session-{session.pk}-{number}")
            ends.lose_attempt(attempt, because("power cut"))
    session.refresh_from_db()
    assert session.state == SessionState.FAILED


def test_why_work_cannot_be_handed_over_is_told(port: RememberingDispatcher) -> None:
    build_build(state=BuildState.WANTED)
    port.error = DispatchError("agent-missing", "no agent program", permanent=False)
    rounds.place_work()
    assert the_attempt().reason == "no agent program"


def test_second_agent_cannot_claim(port: RememberingDispatcher) -> None:
    build_build(state=BuildState.WANTED)
    rounds.place_work()
    life.claim_attempt(the_attempt(), "agent-one")
    life.claim_attempt(the_attempt(), "agent-one")
    with pytest.raises(DomainError, match="running") as raised:
        life.claim_attempt(the_attempt(), "agent-two")
    assert raised.value.code == "superseded"


def test_claim_of_work_that_is_over_is_refused(port: RememberingDispatcher) -> None:
    build = build_build(state=BuildState.WANTED)
    rounds.place_work()
    Build.objects.filter(pk=build.pk).update(state=BuildState.FAILED)
    with pytest.raises(DomainError, match="over"):
        life.claim_attempt(the_attempt(), "agent-one")
    assert the_attempt().state == AttemptState.CANCELED


def test_token_of_another_machine_finds_nothing(port: RememberingDispatcher) -> None:
    session = build_session()
    rounds.place_work()
    secret = issue_token(name="other", scope=ApiToken.Scope.MACHINE, subject="another-machine")
    token = find_token(secret)
    assert token is not None
    with pytest.raises(DomainError) as raised:
        life.find_attempt(key=f"session-{session.pk}-1", token=token)
    assert raised.value.code == "not-found"


@pytest.mark.parametrize("kind", ["build", "session"])
def test_request_of_an_agent_reads_no_log(kind: str) -> None:
    if kind == "session":
        session = build_session()
        scope, host, attempt = ApiToken.Scope.MACHINE, session.machine.name, build_attempt(session)
    else:
        builder, build = build_builder(), build_build(state=BuildState.RUNNING)
        scope, host, attempt = ApiToken.Scope.BUILDER, builder.name, build_attempt(build, builder=builder)
    token = find_token(issue_token(name=host, scope=scope, subject=host))
    assert token is not None
    with CaptureQueriesContext(connection) as captured:
        assert life.find_attempt(key=attempt.key, token=token) == attempt
    assert not [query for query in captured if re.search(r'"(log|log_tail|first_error)"', query["sql"])]
    assert len(captured) == 1


def test_heartbeat_of_a_superseded_series_says_stop(port: RememberingDispatcher) -> None:
    session = build_session()
    rounds.place_work()
    life.claim_attempt(the_attempt(), "agent-one")
    assert life.renew_lease(attempt=the_attempt(), agent="agent-one", progress="boot 1 of 4")
    Series.objects.filter(pk=session.series_id or 0).update(state=SeriesState.SUPERSEDED)
    assert not life.renew_lease(attempt=the_attempt(), agent="agent-one", progress="")
    ends.end_attempt(attempt=the_attempt(), agent="agent-one", outcome="done", reason="")
    assert cancel_superseded() == 1
    session.refresh_from_db()
    assert session.state == SessionState.CANCELED


def test_end_with_boots_left_plans_the_session_again(port: RememberingDispatcher) -> None:
    session = build_session()
    rounds.place_work()
    life.claim_attempt(the_attempt(), "agent-one")
    session.boots.filter(position=0).update(state=BootState.RUNNING)
    ends.end_attempt(attempt=the_attempt(), agent="agent-one", outcome="failed", reason="disk full")
    ends.end_attempt(attempt=the_attempt(), agent="agent-one", outcome="failed", reason="disk full")
    session.refresh_from_db()
    assert session.state == SessionState.PLANNED
    assert "disk full" in session.reason
    assert set(session.boots.values_list("state", flat=True)) == {BootState.PLANNED}

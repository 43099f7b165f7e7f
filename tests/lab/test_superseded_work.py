"""A newer version of a series cancels what waits for the old one, and nothing that others want."""

from typing import Any

import pytest

from server.builds.models import Build, BuildState
from server.builds.records import BuildResult, record_build
from server.builds.wanted import want_build
from server.core.errors import DomainError
from server.core.models import Transition
from server.lab import rounds
from server.lab.attempts import ends, life
from server.lab.models import Attempt, AttemptState, SessionState
from server.lab.sweep import cancel_superseded
from server.sources.models import Series, SeriesState, WantedRevision
from server.sources.supersession import supersede
from tests.builders import build_build, build_machine, build_revision, build_series, build_session
from tests.lab.planning import plan_series
from tests.lab.test_attempts import RememberingDispatcher
from workers.lab import sweep

pytestmark = pytest.mark.django_db
REASON = "a newer version of the series arrived"


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> RememberingDispatcher:
    port = RememberingDispatcher()
    monkeypatch.setattr(rounds, "dispatcher", lambda: port)
    return port


def second_version(first: Series, **fields: Any) -> Series:
    """Version 2 by the same author, applied to a base of its own unless told otherwise; version 1 is superseded."""
    second = build_series(version=2, subject=first.subject, submitted_at=first.submitted_at, **fields)
    supersede(second)
    first.refresh_from_db()
    assert (first.state, first.superseded_by) == (SeriesState.SUPERSEDED, second)
    return second


def states(*, of: Series) -> list[str]:
    trees = [revision.tree_sha for revision in (of.base, of.head) if revision]
    return list(Build.objects.filter(tree_sha__in=trees).order_by("pk").values_list("state", flat=True))


def test_nothing_of_the_old_version_stays_queued() -> None:
    machine = build_machine()
    first = build_series()
    plan_series(series_id=first.pk)
    planned = build_session(build_series(subject="mm: Another"), machine)
    assert states(of=first) == ["wanted", "wanted"]
    second = second_version(first)
    sweep()
    assert states(of=first) == ["canceled", "canceled"]
    planned.refresh_from_db()
    assert planned.state == SessionState.PLANNED, "another series is none of its business"
    history = Transition.objects.filter(subject="build", after="canceled")
    assert set(history.values_list("reason", flat=True)) == {REASON}
    assert plan_series(series_id=first.pk) == []
    plan_series(series_id=second.pk)
    assert states(of=second) == ["wanted", "wanted"]
    assert states(of=first) == ["canceled", "canceled"]


def test_planned_session_of_the_old_version_is_canceled_with_its_boots() -> None:
    first = build_series()
    session = build_session(first)
    second_version(first)
    sweep()
    session.refresh_from_db()
    assert (session.state, session.reason) == (SessionState.CANCELED, REASON)
    assert set(session.boots.values_list("state", flat=True)) == {"failed"}
    assert states(of=first) == ["built", "built"], "what is built is kept"


def test_builds_that_others_want_stay() -> None:
    build_machine()
    first = build_series()
    plan_series(series_id=first.pk)
    chosen = build_series(subject="mm: Chosen by a tree's policy")
    plan_series(series_id=chosen.pk)
    assert chosen.head is not None
    WantedRevision.objects.create(tree=chosen.head.tree, revision=chosen.head, why=WantedRevision.Why.HEAD)
    second_version(chosen)
    second_version(first, base=first.base, head=build_revision())
    sweep()
    assert states(of=first) == ["wanted", "canceled"], "version 2 is on the same base"
    assert states(of=chosen) == ["canceled", "wanted"]


def test_running_build_is_told_to_stop_by_its_next_heartbeat(port: RememberingDispatcher) -> None:
    build_machine()
    first = build_series()
    plan_series(series_id=first.pk)
    rounds.place_work()
    attempt = Attempt.objects.select_related("build", "session").get()
    life.claim_attempt(attempt, "one")
    assert life.renew_lease(attempt=attempt, agent="one", progress="compiling")
    second_version(first)
    sweep()
    assert not life.renew_lease(attempt=attempt, agent="one", progress="compiling")
    ends.end_attempt(attempt=attempt, agent="one", outcome="canceled", reason="")
    rounds.place_work()
    assert states(of=first) == ["canceled", "canceled"]
    assert port.submitted == [attempt.key]


def test_attempt_that_nobody_claimed_is_canceled_and_refused_to_a_late_agent(port: RememberingDispatcher) -> None:
    build_machine()
    first = build_series()
    plan_series(series_id=first.pk)
    rounds.place_work()
    second_version(first)
    sweep()
    attempt = Attempt.objects.select_related("build", "session").get()
    assert (attempt.state, attempt.reason) == (AttemptState.CANCELING, REASON)
    with pytest.raises(DomainError, match="canceling"):
        life.claim_attempt(attempt, "late")
    rounds.reconcile_attempts()
    attempt.refresh_from_db()
    assert (attempt.state, attempt.reason) == (AttemptState.CANCELED, REASON)
    assert port.canceled == [attempt.key], "what was started for it is stopped, too"


def test_running_session_is_told_and_canceled_when_it_has_stopped(port: RememberingDispatcher) -> None:
    first = build_series()
    session = build_session(first)
    rounds.place_work()
    attempt = Attempt.objects.select_related("build", "session__series", "session__machine").get()
    life.claim_attempt(attempt, "one")
    second_version(first)
    sweep()
    session.refresh_from_db()
    assert session.state == SessionState.RUNNING
    assert not life.renew_lease(attempt=attempt, agent="one", progress="booting")
    ends.end_attempt(attempt=attempt, agent="one", outcome="canceled", reason="")
    sweep()
    session.refresh_from_db()
    assert session.state == SessionState.CANCELED


def test_canceled_build_is_wanted_again_by_the_next_who_needs_it() -> None:
    build = build_build(state=BuildState.CANCELED)
    wanted = want_build(revision=build.revision, config=build.config, toolchain=build.toolchain, trace="new")
    assert (wanted, wanted.state, wanted.trace) == (build, BuildState.WANTED, "new")


def test_result_that_comes_after_all_is_kept() -> None:
    build = build_build(state=BuildState.CANCELED)
    failed = BuildResult("failed", "mm/x.c:1: error", 1.0, "", "gcc", "", ())
    assert record_build(build=build, result=failed)
    build.refresh_from_db()
    assert build.state == BuildState.FAILED


def test_cancelling_twice_changes_nothing() -> None:
    build_machine()
    first = build_series()
    plan_series(series_id=first.pk)
    second_version(first)
    assert cancel_superseded() == 2
    assert cancel_superseded() == 0

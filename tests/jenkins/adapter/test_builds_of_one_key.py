"""More than one build of a key."""

from datetime import timedelta

import pytest

from server.core import clock
from server.core.errors import DomainError
from server.lab import rounds
from server.lab.dispatch.jenkins import runs
from server.lab.dispatch.jenkins.models import JenkinsController, JenkinsRun
from server.lab.dispatch.jenkins.values import Garbled
from server.lab.models import Attempt, AttemptState
from server.lab.port import Observed
from tests.jenkins.adapter.looking import MACHINE, claim, count_of, fresh, run_of, seen, started, work_of
from tests.lab.worlds import JenkinsWorld, let_end, new_work, starts, until

pytestmark = pytest.mark.django_db


def test_second_build_of_a_key_is_shown_and_refused(world: JenkinsWorld, attempt: Attempt) -> None:
    world.server.node(MACHINE).executors = 2
    started(world, attempt)
    world.server.start_twice(attempt.key)
    until(lambda: starts(world, attempt.key) == 2)
    rounds.reconcile_attempts()
    first = run_of(attempt).number
    sighting = world.port.look([work_of(attempt)]).works[attempt.key]
    assert sighting.observed is Observed.ALIVE
    assert "also started as build" in run_of(attempt).why
    claim(attempt, number=first)
    with pytest.raises(DomainError) as raised:
        claim(attempt, "agent-two", number=2)
    assert raised.value.code == "superseded"
    assert run_of(attempt).number == first


def test_later_build_that_ends_well_says_nothing_about_the_claimed_one(world: JenkinsWorld, attempt: Attempt) -> None:
    world.server.node(MACHINE).executors = 2
    started(world, attempt)
    claim(attempt, number=run_of(attempt).number)
    world.server.kill_agent(MACHINE, back_after=0.05)
    until(lambda: seen(world, attempt) is Observed.LEFT)
    let_end(world, attempt.key)
    world.server.start_twice(attempt.key)
    until(lambda: len(world.server.builds_of(attempt.key)) == 2 and not world.server.builds_of(attempt.key)[1].building)
    assert world.server.builds_of(attempt.key)[1].result == "SUCCESS"
    assert seen(world, attempt) is Observed.LEFT
    rounds.reconcile_attempts()
    assert fresh(attempt).state == AttemptState.RUNNING, "its lease holds"


def test_build_that_is_older_than_its_attempt_is_another_attempts(world: JenkinsWorld, attempt: Attempt) -> None:
    """A database that was put back to an older state gives keys out again."""
    started(world, attempt)
    let_end(world, attempt.key)
    until(lambda: seen(world, attempt) is Observed.ENDED)
    JenkinsRun.objects.all().delete()
    Attempt.objects.update(created_at=clock.now() + timedelta(hours=1), state=AttemptState.SUBMITTING, posts=None)
    assert seen(world, attempt) is Observed.ABSENT
    rounds.reconcile_attempts()
    assert fresh(attempt).state == AttemptState.QUEUED
    assert count_of(attempt) == 1


def test_odd_answer_to_one_search_stops_no_look(
    world: JenkinsWorld, attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    started(world, attempt)
    other, _ = new_work("vm-zen")
    world.define()
    let_end(world, attempt.key)
    monkeypatch.setattr(runs, "NEWEST_BUILDS", 0)
    JenkinsRun.objects.create(attempt=other, job=run_of(attempt).job)
    Attempt.objects.filter(pk=other.pk).update(posts=1)
    monkeypatch.setattr(world.client, "find_builds", garbled)
    assert seen(world, other) is Observed.UNSURE
    assert not JenkinsController.objects.get().unreachable_since


def garbled(_job: str, _key: str) -> list[tuple[int, int | None]]:
    raise Garbled("half an answer")

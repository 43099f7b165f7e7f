"""Tokens, jobs and nodes that only a person can mend."""

from datetime import timedelta

import pytest

from server.lab import rounds
from server.lab.dispatch.base import DispatchError, Observed
from server.lab.dispatch.jenkins import alarms
from server.lab.fruitless import fruitless_attempts
from server.lab.models import Attempt, AttemptState, JenkinsController, JenkinsJob, JenkinsRun
from tests.jenkins.adapter.looking import MACHINE, fresh, posts, run_of, seen, started, work_of
from tests.lab.worlds import JenkinsWorld, until

pytestmark = pytest.mark.django_db


def test_refused_token_is_an_alarm_with_one_probe_a_minute(
    world: JenkinsWorld, attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    started(world, attempt)
    world.server.expire_token()
    assert not rounds.reconcile_attempts()
    row = JenkinsController.objects.get()
    assert "Renew the token" in row.alarm
    assert row.alarm_since is not None
    sent = len(world.server.requests)
    for _ in range(3):
        assert not rounds.reconcile_attempts()
    assert len(world.server.requests) == sent, "nothing is sent while the alarm stands"
    world.token_file.write_text(world.server.renew_token())
    monkeypatch.setattr(alarms, "_PROBE_EVERY", timedelta())
    assert rounds.reconcile_attempts()
    row.refresh_from_db()
    assert not row.alarm
    assert not row.alarm_since
    assert fresh(attempt).state == AttemptState.QUEUED


def test_job_that_somebody_edited_gets_nothing_triggered(world: JenkinsWorld, attempt: Attempt) -> None:
    job = f"tidemark-session-{MACHINE}"
    world.server.edit_job(job)
    rounds.reconcile_attempts()
    assert posts(world) == 0
    assert job in JenkinsJob.objects.get().problem
    assert "nothing is triggered" in fresh(attempt).reason
    del world.server.controller.jobs[job]
    JenkinsJob.objects.all().delete()
    world.define()
    started(world, attempt)


def test_job_that_is_missing_is_named(world: JenkinsWorld, attempt: Attempt) -> None:
    del world.server.controller.jobs[f"tidemark-session-{MACHINE}"]
    rounds.reconcile_attempts()
    assert "jenkins_apply" in fresh(attempt).reason
    assert posts(world) == 0


def test_node_that_is_not_there_is_told_and_its_work_waits(world: JenkinsWorld, attempt: Attempt) -> None:
    world.server.remove_node(MACHINE)
    look = world.port.look([work_of(attempt)])
    assert not look.hosts[MACHINE].connected
    assert MACHINE in look.hosts[MACHINE].detail
    rounds.reconcile_attempts()
    # The queue says so once the item has left the quiet period.
    until(lambda: seen(world, attempt) is Observed.WAITING and run_of(attempt).stuck)
    assert run_of(attempt).why


def test_token_that_expires_within_a_round_sends_nothing_more(world: JenkinsWorld, attempt: Attempt) -> None:
    world.port.look([work_of(attempt)])
    world.server.expire_token()
    with pytest.raises(DispatchError):
        world.port.submit(work_of(attempt))
    assert run_of(attempt).posts == 0, "a refused trigger is none"
    sent = len(world.server.requests)
    for act in (world.port.submit, world.port.cancel):
        JenkinsRun.objects.update(posts=1 if act == world.port.cancel else 0)
        with pytest.raises(DispatchError, match="Renew the token"):
            act(work_of(attempt))
    with pytest.raises(DispatchError, match="Renew the token"):
        world.port.hold({MACHINE: attempt.key})
    assert len(world.server.requests) == sent


def test_attempts_that_were_never_triggered_do_not_use_work_up(world: JenkinsWorld, attempt: Attempt) -> None:
    assert attempt.session is not None
    run = JenkinsRun.objects.create(attempt=attempt, job="gone", posts=0)
    assert fruitless_attempts(attempt.session) == 0
    run.posts = 1
    run.save()
    assert fruitless_attempts(attempt.session) == 1

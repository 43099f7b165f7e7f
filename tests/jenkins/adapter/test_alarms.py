"""Tokens, jobs and nodes that only a person can mend."""

from datetime import timedelta

import pytest

from server.lab import rounds
from server.lab.attempts.ends import fruitless_attempts
from server.lab.dispatch.jenkins import controller
from server.lab.dispatch.jenkins.models import JenkinsController, JenkinsJob
from server.lab.models import Attempt, AttemptState
from server.lab.port import DispatchError, Observed
from tests.jenkins.adapter.looking import AGENT, MACHINE, count_of, fresh, posts, run_of, seen, started, work_of
from tests.lab.worlds import JenkinsWorld, until

pytestmark = pytest.mark.django_db


def refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller refuses us, and does so for longer than it does while it starts."""
    assert not rounds.reconcile_attempts()
    with monkeypatch.context() as patched:
        patched.setattr(controller, "_BELIEVED_AFTER", timedelta())
        assert not rounds.reconcile_attempts()


def test_refused_token_is_an_alarm_with_one_probe_a_minute(
    world: JenkinsWorld, attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    started(world, attempt)
    world.server.expire_token()
    refused(monkeypatch)
    row = JenkinsController.objects.get()
    assert "Renew the token" in row.alarm
    assert row.alarm_since is not None
    sent = len(world.server.requests)
    for _ in range(3):
        assert not rounds.reconcile_attempts()
    assert len(world.server.requests) == sent, "nothing is sent while the alarm stands"
    world.token_file.write_text(world.server.renew_token())
    monkeypatch.setattr(controller, "_PROBE_EVERY", timedelta())
    assert rounds.reconcile_attempts()
    row.refresh_from_db()
    assert not row.alarm
    assert not row.alarm_since
    assert fresh(attempt).state == AttemptState.QUEUED


def test_401_of_a_controller_that_starts_is_no_alarm(world: JenkinsWorld, attempt: Attempt) -> None:
    started(world, attempt)
    world.server.go_down(kill=False)
    assert not rounds.reconcile_attempts()
    for answering in ("503", "401", "503", "401"):
        world.server.begin_to_start(answering)
        assert not rounds.reconcile_attempts()
        row = JenkinsController.objects.get()
        assert not row.alarm, f"after {answering}"
        assert row.unreachable_since
    world.server.come_up()
    assert rounds.reconcile_attempts(), "it is asked again at once"


def test_401_out_of_the_blue_is_believed_when_it_lasts(
    world: JenkinsWorld, attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    started(world, attempt)
    world.server.begin_to_start("401")
    for _ in range(3):
        assert not rounds.reconcile_attempts()
    row = JenkinsController.objects.get()
    assert not row.alarm
    assert "401" in row.trouble
    monkeypatch.setattr(controller, "_BELIEVED_AFTER", timedelta())
    assert not rounds.reconcile_attempts()
    row.refresh_from_db()
    assert "Renew the token" in row.alarm


@pytest.mark.parametrize("wrong", ["401", "403", "404"])
def test_refusals_of_a_proxy_say_nothing_of_token_rights_and_jobs(
    world: JenkinsWorld, attempt: Attempt, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    monkeypatch.setattr(controller, "_BELIEVED_AFTER", timedelta())
    world.server.answer_with(wrong, path="^GET /job/")  # type: ignore[arg-type]  # (its words)
    rounds.reconcile_attempts()
    world.server.answer_with(wrong)  # type: ignore[arg-type]  # (as above)
    for _ in range(3):
        assert not rounds.reconcile_attempts()
    row = JenkinsController.objects.get()
    assert not row.alarm
    assert row.unreachable_since
    assert not JenkinsJob.objects.exclude(problem="").exists(), "a job is not there only where Jenkins says so"
    world.server.restore_network()
    started(world, attempt)


def test_job_that_somebody_edited_gets_nothing_triggered(world: JenkinsWorld, attempt: Attempt) -> None:
    job = f"tidemark-session-{MACHINE}"
    world.server.edit_job(job)
    rounds.reconcile_attempts()
    assert posts(world) == 0
    assert job in JenkinsJob.objects.get().problem
    assert "nothing is triggered" in fresh(attempt).reason
    assert fresh(attempt).state == AttemptState.LOST, "another host may do it"
    assert fresh(attempt).session.state == "planned"  # type: ignore[union-attr]


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
    assert count_of(attempt) == 0, "a refused trigger is none"
    sent = len(world.server.requests)
    for act in (world.port.submit, world.port.cancel):
        Attempt.objects.update(posts=1 if act == world.port.cancel else 0)
        with pytest.raises(DispatchError, match="401"):
            act(work_of(attempt))
    with pytest.raises(DispatchError, match="401"):
        world.port.hold({MACHINE: attempt.key})
    assert len(world.server.requests) == sent


def test_attempts_that_were_never_triggered_do_not_use_work_up(world: JenkinsWorld, attempt: Attempt) -> None:
    assert attempt.session is not None
    Attempt.objects.update(posts=0)
    assert fruitless_attempts(attempt.session) == 0
    Attempt.objects.update(posts=1)
    assert fruitless_attempts(attempt.session) == 0, "no agent has claimed it"
    Attempt.objects.update(agent=AGENT)
    assert fruitless_attempts(attempt.session) == 1

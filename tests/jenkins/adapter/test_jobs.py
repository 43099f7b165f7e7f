"""Jobs that somebody changed on the controller."""

from datetime import timedelta

import pytest

from server.core import clock
from server.core.errors import DomainError
from server.lab import rounds
from server.lab.attempts import life
from server.lab.attempts.ends import fruitless_attempts
from server.lab.dispatch.jenkins import jobs
from server.lab.dispatch.jenkins.models import JenkinsJob
from server.lab.hosts.state import note_sightings
from server.lab.models import Attempt, AttemptState, Fault, Machine
from server.lab.port import Origin, UnfitJob
from tests.jenkins.adapter.looking import AGENT, MACHINE, fresh, posts, script_of, started, work_of
from tests.lab.worlds import JenkinsWorld, let_end, until

pytestmark = pytest.mark.django_db
JOB = f"tidemark-session-{MACHINE}"


def told(world: JenkinsWorld, attempt: Attempt) -> str:
    """The hash that the attempt's script has told its agent."""
    return (world.folder / f"script-{attempt.key}").read_text()


def unfit_jobs(world: JenkinsWorld) -> tuple[UnfitJob, ...]:
    """As pages list them."""
    shown = world.port.controller()
    assert shown is not None
    return shown.jobs


def claim_as_told(world: JenkinsWorld, attempt: Attempt) -> None:
    life.claim_attempt(fresh(attempt), AGENT, origin=Origin(script=told(world, attempt)))


def test_our_script_tells_the_hash_that_the_service_knows(world: JenkinsWorld, attempt: Attempt) -> None:
    started(world, attempt)
    assert told(world, attempt) == script_of(attempt)
    claim_as_told(world, attempt)
    assert fresh(attempt).state == AttemptState.RUNNING


def test_script_that_was_edited_by_hand_gets_no_work(world: JenkinsWorld, attempt: Attempt) -> None:
    world.server.edit_script(JOB, lambda script: script.replace("exec ", "id > /dev/null\nexec ", 1))
    started(world, attempt)
    with pytest.raises(DomainError) as raised:
        claim_as_told(world, attempt)
    assert raised.value.code == "job-edited"
    assert fresh(attempt).agent == ""
    assert fresh(attempt).fault == Fault.JOB
    let_end(world, attempt.key)
    until(lambda: rounds.reconcile_attempts() and fresh(attempt).state == AttemptState.LOST)
    assert attempt.session is not None
    assert fruitless_attempts(attempt.session) == 0, "the work is kept"
    assert [row.problem for row in unfit_jobs(world) if "edited by hand" in row.problem]
    sent = posts(world)
    look = world.port.look([])
    assert not look.hosts[MACHINE].connected
    note_sightings(look.hosts)
    machine = Machine.objects.get()
    assert (machine.state, "edited by hand" in machine.state_reason) == (Machine.State.OFFLINE, True)
    assert (machine.health, posts(world)) == (Machine.Health.GOOD, sent)


def test_script_that_tells_nothing_gets_no_work(world: JenkinsWorld, attempt: Attempt) -> None:
    started(world, attempt)
    with pytest.raises(DomainError, match="does not say which"):
        life.claim_attempt(fresh(attempt), AGENT)


def test_edited_script_is_tried_again_from_time_to_time(
    world: JenkinsWorld, attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.server.edit_script(JOB, lambda script: f"{script}\n# mine\n")
    started(world, attempt)
    with pytest.raises(DomainError):
        claim_as_told(world, attempt)
    assert JOB in jobs.unfit()
    monkeypatch.setattr(jobs, "_TRY_EDITED_EVERY", timedelta())
    assert jobs.unfit() == {}
    assert JenkinsJob.objects.get(name=JOB).trouble, "the page goes on to say it"
    life.claim_attempt(fresh(attempt), AGENT, origin=Origin(script=script_of(attempt)))
    assert not JenkinsJob.objects.get(name=JOB).trouble


def test_disabled_job_is_triggered_once_and_told(world: JenkinsWorld, attempt: Attempt) -> None:
    jobs.check(world.client, JOB)
    world.server.disable_job(JOB)
    for _ in range(5):
        rounds.reconcile_attempts()
    assert posts(world) == 1
    assert [row.problem for row in unfit_jobs(world)] == [f"{JOB} is disabled"]
    assert "disabled" in fresh(attempt).reason
    assert not world.port.look([]).hosts[MACHINE].connected, "its work may go elsewhere"


def test_job_that_was_enabled_again_gets_work_within_a_minute(
    world: JenkinsWorld, attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.server.disable_job(JOB)
    rounds.reconcile_attempts()
    world.server.disable_job(JOB, disabled=False)
    world.port.look([work_of(attempt)])
    assert JOB in jobs.unfit(), "it was looked at just now"
    JenkinsJob.objects.update(checked_at=clock.now() - timedelta(seconds=61))
    world.port.look([work_of(attempt)])
    assert jobs.unfit() == {}
    assert world.port.look([]).hosts[MACHINE].connected


def test_trigger_that_is_refused_for_a_right_is_not_repeated_each_round(world: JenkinsWorld, attempt: Attempt) -> None:
    user = world.server.users.by_name[world.server.user]
    user.permissions -= {"hudson.model.Item.Build"}
    for _ in range(5):
        rounds.reconcile_attempts()
    assert posts(world) == 1
    assert "hudson.model.Item.Build" in JenkinsJob.objects.get(name=JOB).problem

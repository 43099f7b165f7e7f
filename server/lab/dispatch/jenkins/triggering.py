"""Triggering a run's job: counted before the request leaves, and never repeated blindly."""

from contextlib import suppress

import structlog

from server.core import clock
from server.lab.dispatch.base import DispatchError, Work
from server.lab.dispatch.jenkins import jobs
from server.lab.dispatch.jenkins.alarms import noting
from server.lab.dispatch.jenkins.client import Forbidden, JenkinsClient, JenkinsError, Missing, Rejected
from server.lab.dispatch.jenkins.definitions import job_name
from server.lab.dispatch.jenkins.matching import is_gone, is_known
from server.lab.models import Attempt, JenkinsRun

log = structlog.get_logger(__name__)

# Triggers of one run whose effect nobody ever saw.
MOST_POSTS = 3


def submit_run(client: JenkinsClient, work: Work) -> bool:
    """Trigger the run's job unless the controller knows it; whether that was done. Raises DispatchError."""
    run = _run_to_trigger(work)
    if run is None:
        return False
    with noting():
        problem = jobs.trouble_of(client, run.job)
    if problem:
        raise DispatchError("jenkins-job", f"nothing is triggered in {run.job}: {problem}")
    posts = run.posts
    # Committed before the request leaves; of two dispatchers one wins.
    counted = JenkinsRun.objects.filter(pk=run.pk, posts=posts, result="").update(
        posts=posts + 1, posted_at=clock.now(), queue_id=None, absent_since=None, absent_looks=0
    )
    if counted:
        _trigger(client, run, posts)
    return bool(counted)


def _run_to_trigger(work: Work) -> JenkinsRun | None:
    """The run, committed, if it may be triggered; None if it was and is known to the controller."""
    attempt = Attempt.objects.get(key=work.key)
    run, _ = JenkinsRun.objects.select_related("attempt").get_or_create(
        attempt=attempt, defaults={"job": job_name(work.kind, work.subject), "node": work.host[:60]}
    )
    if run.posts == 0:
        return run
    if not is_gone(run, clock.now()):
        if is_known(run):
            return None
        raise DispatchError("jenkins-unsure", f"not known yet whether Jenkins took {work.key} in", permanent=False)
    if run.posts >= MOST_POSTS:
        raise DispatchError("jenkins-lost", f"triggered {run.posts} times, and never seen in {run.job}")
    return run


def _trigger(client: JenkinsClient, run: JenkinsRun, posts: int) -> None:
    try:
        with noting():
            triggered = client.trigger(run.job, run.attempt.key)
    except JenkinsError as error:
        if not error.maybe_done:
            JenkinsRun.objects.filter(pk=run.pk, posts=posts + 1).update(posts=posts)
        if isinstance(error, Missing | Forbidden | Rejected):
            with suppress(JenkinsError), noting():
                jobs.check_refused(client, run.job, error)
        raise
    JenkinsRun.objects.filter(pk=run.pk).update(queue_id=triggered.queue_id, controller_session=client.head.session)
    log.info("run_triggered", key=run.attempt.key, job=run.job, queue_id=triggered.queue_id)

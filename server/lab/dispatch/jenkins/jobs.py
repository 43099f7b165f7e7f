"""Whether jobs still are as they were defined: one that somebody else edited gets nothing triggered."""

from datetime import datetime, timedelta

import structlog

from server.core import clock
from server.lab.dispatch.jenkins.client import JenkinsClient, JenkinsError, Missing
from server.lab.dispatch.jenkins.definitions import check_job
from server.lab.models import JenkinsJob

log = structlog.get_logger(__name__)

# People edit jobs rarely, and at once see what comes of it here.
_CHECK_EVERY = timedelta(minutes=10)


def trouble_of(client: JenkinsClient, name: str) -> str:
    """Why nothing may be triggered there, or "". A job that nobody has looked at yet is looked at now."""
    job = JenkinsJob.objects.filter(name=name).first()
    if job is None or job.checked_at is None:
        return check(client, name)
    return job.problem


def check(client: JenkinsClient, name: str) -> str:
    """Ask the controller; one request."""
    try:
        problem = check_job(client, name)
    except Missing as error:
        problem = f"there is no such job, or it is hidden from our user: {error.message}"
    return note(name, problem)


def note(name: str, problem: str) -> str:
    if problem:
        log.warning("jenkins_job_unfit", job=name, problem=problem)
    JenkinsJob.objects.update_or_create(name=name, defaults={"problem": problem, "checked_at": clock.now()})
    return problem


def check_oldest(client: JenkinsClient, now: datetime) -> None:
    """Look at one job whose last check is too long ago, if there is one. What it costs waits for nobody."""
    overdue = JenkinsJob.objects.exclude(checked_at__gt=now - _CHECK_EVERY, checked_at__lte=now)
    job = overdue.order_by("checked_at").first()
    if job is not None:
        try:
            check(client, job.name)
        except JenkinsError as error:
            log.warning("jenkins_job_unchecked", job=job.name, error=error.message)


def forget(name: str) -> None:
    """The job was just put right: what was noted of it holds no longer, and it is looked at before its next trigger."""
    JenkinsJob.objects.filter(name=name).update(problem="", checked_at=None)

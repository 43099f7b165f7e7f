"""Whether jobs still are as they were defined: one that somebody else edited gets nothing triggered."""

from datetime import datetime, timedelta

import structlog
from django.db.models import Q

from server.core import clock
from server.lab.dispatch.jenkins.client import JenkinsClient, JenkinsError, Missing
from server.lab.dispatch.jenkins.definitions import check_job
from server.lab.models import JenkinsJob

log = structlog.get_logger(__name__)

# People edit jobs rarely, and at once see what comes of it here.
_CHECK_EVERY = timedelta(minutes=10)
# Who puts one right is not kept waiting.
_CHECK_UNFIT_EVERY = timedelta(minutes=1)
# Whether an edited script was put right can only be seen by starting it.
_TRY_EDITED_EVERY = timedelta(minutes=10)


def trouble_of(client: JenkinsClient, name: str) -> str:
    """Why nothing may be triggered there, or "". A job that nobody has looked at yet is looked at now."""
    job = JenkinsJob.objects.filter(name=name).first()
    if job is None or job.checked_at is None:
        check(client, name)
        job = JenkinsJob.objects.filter(name=name).first()
    return _trouble_now(job, clock.now())


def unfit() -> dict[str, str]:
    """Names of all jobs in which nothing may be triggered at this moment, and why."""
    now = clock.now()
    told = {job.name: _trouble_now(job, now) for job in JenkinsJob.objects.exclude(problem="", edited_at=None)}
    return {name: trouble for name, trouble in told.items() if trouble}


def _trouble_now(job: JenkinsJob | None, now: datetime) -> str:
    if job is None:
        return ""
    tried = job.edited_at is not None and timedelta() <= now - job.edited_at < _TRY_EDITED_EVERY
    return job.trouble if job.problem or tried else ""


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


def check_refused(client: JenkinsClient, name: str, error: JenkinsError) -> None:
    """Jenkins has just refused to start it: look why, whenever it was looked at last, so that it is not asked again."""
    problem = check(client, name)
    if not problem and not error.maybe_done:
        note(name, f"Jenkins does not start it: {error.message}")


def note_edited(name: str) -> None:
    """A build of it runs another script than ours."""
    JenkinsJob.objects.update_or_create(name=name, defaults={"edited_at": clock.now()})


def note_ours(name: str) -> None:
    """A build of it runs our script."""
    JenkinsJob.objects.filter(name=name).exclude(edited_at=None).update(edited_at=None)


def check_oldest(client: JenkinsClient, now: datetime) -> None:
    """Look at one job whose last check is too long ago, if there is one. What it costs waits for nobody."""
    fresh = Q(checked_at__gt=now - _CHECK_EVERY, problem="") | Q(checked_at__gt=now - _CHECK_UNFIT_EVERY)
    overdue = JenkinsJob.objects.exclude(fresh, checked_at__lte=now)
    job = overdue.order_by("checked_at").first()
    if job is not None:
        try:
            check(client, job.name)
        except JenkinsError as error:
            log.warning("jenkins_job_unchecked", job=job.name, error=error.message)


def forget(name: str) -> None:
    """The job was just put right: what was noted of it holds no longer, and it is looked at before its next trigger."""
    JenkinsJob.objects.filter(name=name).update(problem="", checked_at=None, edited_at=None)

"""Housekeeping that no room owns."""

import structlog
from celery import shared_task
from django.contrib.sessions.models import Session

from server.builds.expiry import check_artifacts, expire_artifacts
from server.builds.storage import forget_interrupted_uploads
from server.core import clock
from server.core.access.tries import forget_begun, forget_old_tries
from server.core.database import advisory_lock
from server.core.errors import DomainError
from server.detection.lifecycle.needed import sessions_in_use
from server.detection.recompute.chunks import forget_recomputations
from server.detection.sweep import look_back
from server.lab.dispatch.local import forget_old_logs
from server.lab.trials.kernels import builds_in_use
from server.lab.trials.life import want_series_trials
from server.operations.canary import tend_canary
from server.sources.upkeep import tend_all

log = structlog.get_logger(__name__)
# Of each hour: a week of them reads every file of a site with some terabytes.
_CHECK_SECONDS = 120.0
# Of each hour: rows that have to leave are a year's at first, and some hundred sessions a day from then on.
_RETAIN_SECONDS = 300.0


# Repositories are given 20 minutes: nobody waits for this task.
@shared_task(name="upkeep.clean", soft_time_limit=1500, time_limit=1560)
def clean() -> None:
    """Forget expired logins, tries, old logs of agents, files of builds by policy; look back; tend the repositories."""
    Session.objects.filter(expire_date__lt=clock.now()).delete()
    forget_old_tries()
    forget_begun()
    forget_old_logs()
    forget_recomputations()
    _tend_growth()
    _look_back()
    _tend_artifacts()
    tend_all()


@shared_task(name="upkeep.canary")
def canary() -> None:
    """Post it, follow it, alarm: a few queries where nothing is to be done."""
    tend_canary()


def _look_back() -> None:
    """Sweeps look at what moved of late; what they missed, as after an outage of a week, is found here."""
    with advisory_lock("lab.plan") as free:
        if free:
            want_series_trials()
    with advisory_lock("detection.life") as free:
        if free:
            look_back()


def _tend_growth() -> None:
    # Files of the archive are written by a library as large as all the rest: it is read in once an hour.
    from server.results.retention import retain, tend_parts  # noqa: PLC0415

    tend_parts()
    try:
        retain(sessions_in_use, seconds=_RETAIN_SECONDS)
    except DomainError as error:
        log.warning("rows_stay", reason=error.message)


def _tend_artifacts() -> None:
    try:
        forget_interrupted_uploads()
        expire_artifacts(builds_in_use())
        check_artifacts(seconds=_CHECK_SECONDS)
    except DomainError as error:
        # A bucket that is away is no reason to neglect the rest; the next hour goes on.
        log.warning("artifacts_not_tended", reason=error.message)

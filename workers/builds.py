import structlog
from celery import shared_task
from django.db import IntegrityError

from server.builds.wanted import cancel_edited
from server.core.clock import lately
from server.core.database import advisory_lock
from server.core.errors import DomainError
from server.core.tasks import enqueue
from server.lab.sweep import tend_kernels
from server.lab.trials.life import plan_trial, trials_to_plan, want_series_trials

log = structlog.get_logger(__name__)


@shared_task(name="builds.sweep")
def sweep() -> None:
    """Want the kernels of every trial that waits, plan sessions for those that are built, mend what lost a kernel."""
    with advisory_lock("lab.plan") as free:
        if not free:
            return
        cancel_edited()
        tend_kernels()
        want_series_trials(since=lately())
        for trial_id in trials_to_plan():
            try:
                plan_trial(trial_id=trial_id)
            except (DomainError, IntegrityError) as error:
                # One trial's trouble must not keep the others from their work.
                log.warning("trial_not_planned", trial=trial_id, error=str(error))
        enqueue("lab.dispatch")

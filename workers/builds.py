"""Queue `builds`: wanting kernels, and planning what is to be measured with them."""

from celery import shared_task

from server.builds.wanted import cancel_edited
from server.core.clock import lately
from server.core.database import advisory_lock
from server.core.tasks import enqueue
from server.lab.sweep import tend_kernels
from server.lab.trials.life import plan_trials, want_series_trials


@shared_task(name="builds.sweep")
def sweep() -> None:
    """Want the kernels of every trial that waits, plan sessions for those that are built, mend what lost a kernel."""
    with advisory_lock("lab.plan") as free:
        if not free:
            return
        cancel_edited()
        tend_kernels()
        want_series_trials(since=lately())
        plan_trials()
        enqueue("lab.dispatch")

from celery import shared_task

from server.builds.services import cancel_edited
from server.core.locks import advisory_lock
from server.core.tasks import enqueue
from server.lab.planner import want_series_trials
from server.lab.rebuilding import tend_kernels
from server.lab.trials.planning import plan_trial, trials_to_plan


@shared_task(name="builds.sweep")
def sweep() -> None:
    """Want the kernels of every trial that waits, plan sessions for those that are built, mend what lost a kernel."""
    with advisory_lock("lab.plan") as free:
        if not free:
            return
        cancel_edited()
        tend_kernels()
        want_series_trials()
        for trial_id in trials_to_plan():
            plan_trial(trial_id=trial_id)
        enqueue("lab.dispatch")

from celery import shared_task

from server.builds.services import cancel_edited
from server.core.locks import advisory_lock
from server.core.tasks import enqueue
from server.lab.planner import plan_series, series_to_plan
from server.lab.rebuilding import tend_kernels


@shared_task(name="builds.sweep")
def sweep() -> None:
    """Want the kernels of every applied series, plan sessions for those that are built, mend what lost a kernel."""
    with advisory_lock("lab.plan") as free:
        if not free:
            return
        cancel_edited()
        tend_kernels()
        for series_id in series_to_plan():
            plan_series(series_id=series_id)
        enqueue("lab.dispatch")

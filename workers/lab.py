from celery import shared_task

from server.core.locks import advisory_lock
from server.core.tasks import enqueue
from server.lab.attempts import cancel_superseded, fail_stranded
from server.lab.rounds import place_work, reconcile_attempts


@shared_task(name="lab.dispatch")
def dispatch() -> None:
    """One round: hold attempts against the dispatcher, then fill its free capacity. One round at a time."""
    with advisory_lock("lab.dispatch") as free:
        if free:
            reconcile_attempts()
            place_work()


@shared_task(name="lab.sweep")
def sweep() -> None:
    cancel_superseded()
    fail_stranded()
    enqueue("lab.dispatch")

import time

from celery import shared_task

from server.core.database import advisory_lock
from server.core.tasks import enqueue
from server.lab.rounds import run_round
from server.lab.sweep import cancel_superseded
from server.lab.sweep import sweep as recover

# A task makes this many rounds at most, so that it ends within seconds; the next message goes on.
_ROUNDS = 5
# The controller's limit of requests gives a round's worth of them back in this time.
_BETWEEN_ROUNDS_SECONDS = 1.0


@shared_task(name="lab.dispatch")
def dispatch() -> None:
    """Rounds, one at a time in the whole service, until nothing is left over that could begin at once."""
    with advisory_lock("lab.dispatch") as free:
        if not free:
            return
        for _ in range(_ROUNDS):
            if not run_round():
                return
            time.sleep(_BETWEEN_ROUNDS_SECONDS)
    enqueue("lab.dispatch")


@shared_task(name="lab.sweep")
def sweep() -> None:
    cancel_superseded()
    recover()
    enqueue("lab.dispatch")

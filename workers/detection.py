"""The detection queue: looking at what was measured, answering who asked, and what goes on by itself."""

from celery import shared_task

from server.core.access.tries import MOST_BEGUN, counted
from server.core.database import advisory_lock
from server.core.reasons import Because
from server.core.tasks import enqueue
from server.detection.on_trial_over import answer_trial
from server.detection.recompute.chunks import go_on
from server.detection.sweep import PARTS
from server.detection.trials.look import look_at_trial
from server.detection.trials.scope import trials_to_look_at, unanswered_trials
from server.lab.trials.life import give_up_trial


@shared_task(name="detection.look")
def look(trial_id: int) -> None:
    """Nobody waits for a look that is under way: it would hold one more worker, and the sweep comes back anyway."""
    key = f"detection.look.{trial_id}"
    with advisory_lock(key) as free:
        if not free:
            return
        with counted(key, alone=True) as may_begin:
            if may_begin:
                look_at_trial(trial_id=trial_id)
            else:
                give_up_trial(
                    trial_id=trial_id,
                    reason=Because.NOT_JUDGED(f"{MOST_BEGUN} looks at it took more than a worker has"),
                )


@shared_task(name="detection.answer")
def answer(trial_id: int) -> None:
    answer_trial(trial_id=trial_id)


@shared_task(name="detection.tend")
def tend(part: str) -> None:
    """One sweep of one part, and of nobody else meanwhile."""
    with advisory_lock(f"detection.{part}") as free:
        if free:
            PARTS[part]()


@shared_task(name="detection.recompute")
def recompute(chunk_id: int) -> None:
    """Some seconds of it: what is left goes on with the next message, and other tasks get their turn."""
    if go_on(chunk_id):
        enqueue("detection.recompute", chunk_id)


@shared_task(name="detection.sweep")
def sweep() -> None:
    """Each piece of work gets its own task, so that one that fails does not stand in the way of others."""
    for trial_id in trials_to_look_at():
        enqueue("detection.look", trial_id)
    for trial_id in unanswered_trials():
        enqueue("detection.answer", trial_id)
    for part in PARTS:
        enqueue("detection.tend", part)

"""Ends of attempts: reported by their agents, lost, or stopped."""

from django.db import transaction

from server.builds.models import Build, BuildState
from server.core.tasks import enqueue
from server.lab.models import Attempt, AttemptState, PowerCycle, PowerCycleState, Session, SessionState
from server.lab.moving import UNCLAIMED, lock_attempt, move_attempt
from server.lab.power import end_power_cycle
from server.lab.requeueing import end_session, requeue
from server.lab.trouble import after_lost, after_unfit


def end_attempt(*, attempt: Attempt, agent: str, outcome: str, reason: str, unfit: bool = False) -> None:
    """The agent stops. Work that has no result yet is planned again. Repeating it is harmless.

    `unfit`: its agent found before it began that its host can do no such work at all.
    """
    said = f"{outcome}: {reason}" if reason else outcome
    with transaction.atomic():
        lock_attempt(attempt)
        if attempt.agent != agent or attempt.state not in {AttemptState.RUNNING, AttemptState.CANCELING}:
            return
        if attempt.state == AttemptState.CANCELING and not _has_result(attempt):
            finish_canceled(attempt, f"{attempt.reason}; its agent ended: {said}")
            return
        if not move_attempt(attempt, AttemptState.DONE, said):
            return
        if attempt.power_cycle is not None:
            end_power_cycle(attempt.power_cycle, outcome == "done", reason)
        else:
            requeue(attempt, f"{attempt.key} ended without all results: {reason or outcome}")
            if unfit:
                after_unfit(attempt, reason)


def _has_result(attempt: Attempt) -> bool:
    """Whether its work is over with a result, of whichever attempt."""
    builds = Build.objects.filter(pk=attempt.build_id or 0)
    sessions = Session.objects.filter(pk=attempt.session_id or 0)
    return (
        builds.filter(state__in=[BuildState.BUILT, BuildState.FAILED, BuildState.EXPIRED]).exists()
        or sessions.filter(state__in=[SessionState.DONE, SessionState.FAILED]).exists()
    )


def cancel_attempt(attempt: Attempt, reason: str, *, losing: bool = False) -> bool:
    """Have the attempt stopped; False if it is over or being stopped already.

    `losing` is for trouble: its work is planned again when it is over. Else nobody wants the work any more.
    """
    if attempt.state not in UNCLAIMED | {AttemptState.RUNNING}:
        return False
    if not move_attempt(attempt, AttemptState.CANCELING, reason, losing=losing):
        return False
    enqueue("lab.dispatch")
    return True


def finish_canceled(attempt: Attempt, reason: str) -> bool:
    """A stopped attempt is over: lost if it was for trouble, else canceled, and its work with it."""
    with transaction.atomic():
        lock_attempt(attempt)
        if attempt.state != AttemptState.CANCELING:
            return False
        if attempt.losing:
            return lose_attempt(attempt, reason)
        if not move_attempt(attempt, AttemptState.CANCELED, reason):
            return False
        if attempt.session_id is not None:
            session = Session.objects.select_for_update(of=("self",)).get(pk=attempt.session_id)
            if session.state in {SessionState.DISPATCHED, SessionState.RUNNING}:
                end_session(session, SessionState.CANCELED, reason)
        elif attempt.build_id is not None:
            # Who wanted the build again while it was being stopped gets a new attempt.
            requeue(attempt, reason)
        elif attempt.power_cycle is not None and attempt.power_cycle.state in PowerCycle.OPEN:
            attempt.power_cycle.advance(PowerCycleState.CANCELED, reason)
    return True


def lose_attempt(attempt: Attempt, reason: str) -> bool:
    """End an attempt that gave no result and plan its work again, or give the work up.

    What that says about its host is concluded here as well.
    """
    with transaction.atomic():
        lock_attempt(attempt)
        if attempt.state not in Attempt.ACTIVE or not move_attempt(attempt, AttemptState.LOST, reason):
            return False
        requeue(attempt, f"{attempt.key} lost: {reason}")
        after_lost(attempt, reason)
    return True

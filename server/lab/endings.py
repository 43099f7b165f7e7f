"""Ends of attempts: reported by their agents, lost, or stopped."""

import json

from django.db import transaction
from django.db.models import Value
from django.db.models.functions import Concat, Right

from server.builds.models import Build, BuildState
from server.builds.services import BuildResult, record_build
from server.core.tasks import enqueue
from server.lab.leases import MAX_LOG_CHARACTERS
from server.lab.models import Attempt, AttemptState, PowerCycle, PowerCycleState, Session, SessionState
from server.lab.moving import UNCLAIMED, lock_attempt, move_attempt
from server.lab.power import end_power_cycle
from server.lab.requeueing import end_session, requeue
from server.lab.trouble import after_lost, after_unfit

# How an agent ends that somebody has told to.
_STOPPED = "stopped"


def report_build(*, attempt: Attempt, agent: str, result: BuildResult, unfit: bool = False) -> bool:
    """Take what a builder reports about its build, and end the attempt; whether the result was stored.

    The agent that claimed it may be dead: the builder's next one brings what lies in its spool. What an attempt that
    was stopped says against the kernel is no verdict: whoever stops a build ends its programs before its agent.
    """
    with transaction.atomic():
        stored = False
        if result.outcome == "failed" and was_stopped(attempt):
            keep_for_the_record(attempt, outcome=result.outcome, reason=result.reason)
        elif result.outcome != "infrastructure" and attempt.build is not None:
            stored = record_build(build=attempt.build, result=result)
        end_attempt(attempt=attempt, agent=agent, outcome=result.outcome, reason=result.reason, unfit=unfit)
        enqueue("builds.sweep")
    return stored


def was_stopped(attempt: Attempt) -> bool:
    """Whether its agent was told to end: a failure that it reports may be the stop's own doing."""
    attempt.refresh_from_db(fields=["state", "losing"])
    is_over = attempt.state == AttemptState.LOST and attempt.losing
    return is_over or attempt.state in {AttemptState.CANCELING, AttemptState.CANCELED}


def keep_for_the_record(attempt: Attempt, *, outcome: str, reason: str) -> None:
    """Write a result that nobody judges by into the attempt's log."""
    line = json.dumps({"event": "result-of-a-stopped-attempt", "outcome": outcome, "reason": reason}) + "\n"
    told = Right(Concat("log", Value(line)), MAX_LOG_CHARACTERS)
    Attempt.objects.filter(pk=attempt.pk).update(log=told)


def end_attempt(*, attempt: Attempt, agent: str, outcome: str, reason: str, unfit: bool = False) -> None:
    """The agent stops. Work that has no result yet is planned again. Repeating it is harmless.

    `unfit`: its agent found before it began that its host can do no such work at all. One that was told to stop, by a
    person or because its controller went down, says nothing about its host.
    """
    said = f"{outcome}: {reason}" if reason else outcome
    with transaction.atomic():
        lock_attempt(attempt)
        if attempt.agent != agent or attempt.state not in {AttemptState.RUNNING, AttemptState.CANCELING}:
            return
        if attempt.state == AttemptState.CANCELING and not _has_result(attempt):
            finish_canceled(attempt, f"{attempt.reason}; its agent ended: {said}")
            return
        if outcome == _STOPPED:
            if move_attempt(attempt, AttemptState.CANCELED, said):
                requeue(attempt, f"{attempt.key} was {said}")
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

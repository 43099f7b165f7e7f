"""What becomes of work whose attempt ended without all its results: it is planned again, or given up."""

from typing import Any

from django.db import transaction

from server.builds.models import Build, BuildState
from server.core import clock
from server.lab.fruitless import MAX_FRUITLESS_ATTEMPTS, fruitless_attempts
from server.lab.health import judge_health
from server.lab.models import Attempt, BootState, PowerCycle, PowerCycleState, Session, SessionState
from server.lab.power import end_power_cycle
from server.lab.waking import wake_judge

# A switch that failed this often will not do it the next time.
_MOST_POWER_CYCLE_ATTEMPTS = 3


def requeue(attempt: Attempt, reason: str) -> None:
    """Put the work of an ended attempt back into the queue; after too many fruitless attempts it fails."""
    if attempt.build_id is not None:
        _requeue_build(attempt.build_id, reason)
    elif attempt.session_id is not None:
        _requeue_session(attempt.session_id, reason)
    elif attempt.power_cycle_id is not None:
        _requeue_power_cycle(attempt.power_cycle_id, reason)


def _requeue_build(pk: int, reason: str) -> None:
    build = Build.objects.select_for_update().get(pk=pk)
    if build.state in {BuildState.DISPATCHED, BuildState.RUNNING}:
        given_up = fruitless_attempts(build) >= MAX_FRUITLESS_ATTEMPTS
        state = BuildState.FAILED if given_up else BuildState.WANTED
        build.advance(state, _given_up(reason) if given_up else reason, given_up=given_up)


def _requeue_session(pk: int, reason: str) -> None:
    session = Session.objects.select_for_update().get(pk=pk)
    if session.state not in {SessionState.DISPATCHED, SessionState.RUNNING}:
        return
    for boot in session.boots.filter(state=BootState.RUNNING):
        boot.advance(BootState.PLANNED, reason)
    if fruitless_attempts(session) >= MAX_FRUITLESS_ATTEMPTS:
        end_session(session, SessionState.FAILED, _given_up(reason))
    else:
        session.advance(SessionState.PLANNED, reason)


def _requeue_power_cycle(pk: int, reason: str) -> None:
    cycle = PowerCycle.objects.select_for_update().get(pk=pk)
    if cycle.state not in {PowerCycleState.DISPATCHED, PowerCycleState.RUNNING}:
        return
    if fruitless_attempts(cycle) >= _MOST_POWER_CYCLE_ATTEMPTS:
        end_power_cycle(cycle, False, reason)
    else:
        cycle.advance(PowerCycleState.WANTED, reason)


def _given_up(reason: str) -> str:
    return f"given up after {MAX_FRUITLESS_ATTEMPTS} attempts without progress: {reason}"


def end_session(session: Session, state: str, reason: str, *, keep: bool = True) -> bool:
    """End a session that will not boot any more, with all its open boots; wakes who judges it.

    One that was done already and boots more has its result: where it is to fail, what it has measured stays, and it is
    concluded. Not so without `keep`: for reasons that speak against what it has measured.
    """
    with transaction.atomic():
        fields: dict[str, Any] = {}
        if state == SessionState.FAILED and keep and was_done(session):
            state, reason = SessionState.DONE, f"cut short: {reason}"
            fields = {"concluded_at": clock.now(), "cut_short": True}
        if not session.advance(state, reason, **fields):
            return False
        for boot in session.boots.filter(state__in=[BootState.PLANNED, BootState.RUNNING]):
            boot.advance(BootState.FAILED, "not booted: the session ended")
        wake_judge(session)
        if session.purpose == Session.Purpose.HEALTH:
            judge_health(session)
    return True


def was_done(session: Session) -> bool:
    """Whether all boots of its first look have ended: it was done, and was given more."""
    if not session.looks:
        return False
    first = session.boots.filter(position__lt=2 * session.looks[0])
    more = session.boots.filter(position__gte=2 * session.looks[0])
    return more.exists() and not first.exclude(state__in=[BootState.MEASURED, BootState.FAILED]).exists()

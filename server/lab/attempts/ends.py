"""Ends of attempts, reported, lost or stopped; what becomes of work that has not all its results: planned again, or
given up.
"""

import json
from typing import Any

from django.db import transaction
from django.db.models import QuerySet, Value
from django.db.models.functions import Concat, Right

from server.builds.models import Build, BuildState
from server.builds.records import BuildResult, record_build
from server.core import clock
from server.core.models import Transition
from server.core.reasons import Because, Reason
from server.core.tasks import enqueue
from server.lab.attempts.life import MAX_LOG_CHARACTERS, UNCLAIMED, lock_attempt, move_attempt
from server.lab.hosts.health import judge_health
from server.lab.hosts.state import HostHello, State, change_state, note_hello
from server.lab.hosts.trouble import after_lost, after_unfit, end_power_cycle
from server.lab.models import (
    Attempt,
    AttemptState,
    BootState,
    Builder,
    Machine,
    PowerCycle,
    PowerCycleState,
    Session,
    SessionState,
)


def wake_judge(session: Session) -> None:
    """Have a session that ended looked at with its trial."""
    if session.trial_id is not None:
        enqueue("detection.look", session.trial_id)


# Attempts that ended without any progress before the work is given up.
MAX_FRUITLESS_ATTEMPTS = 8
# More than people and restarts stop of one piece of work: what is beyond, its agent ends by itself again and again.
_MOST_STOPPED = 50


def fruitless_attempts(item: Build | Session | PowerCycle) -> int:
    """Attempts for the present cause of a build; of a session those since the last boot that ended with a result.

    Those that the controller was never asked to begin do not count: a job that is missing over a weekend, or a token
    that is refused, says nothing about the work. Nor do those of builds and sessions that no agent has claimed: what
    never began is its host's trouble, or ours. A machine's check is about the machine. Nor does any that was
    stopped, by a person or because its controller went down, up to some number that nobody reaches so.
    """
    asked = item.attempts.exclude(posts=0, agent="")
    if isinstance(item, Build):
        asked = asked.filter(trace=item.trace)
    stopped = max(asked.filter(state=AttemptState.CANCELED).count() - _MOST_STOPPED, 0)
    return stopped + _ended_in_vain(item, asked.exclude(state=AttemptState.CANCELED))


def _ended_in_vain(item: Build | Session | PowerCycle, begun: "QuerySet[Attempt]") -> int:
    if isinstance(item, Build) or (isinstance(item, Session) and item.purpose != Session.Purpose.HEALTH):
        begun = begun.exclude(posts__isnull=False, agent="", arrived_at=None)
    if not isinstance(item, Session):
        return begun.count()
    ended = item.boots.filter(state__in=[BootState.MEASURED, BootState.FAILED]).order_by("-state_since")
    last = ended.values_list("state_since", flat=True).first()
    return (begun.filter(created_at__gt=last) if last else begun).count()


# A switch that failed this often will not do it the next time.
_MOST_POWER_CYCLE_ATTEMPTS = 3


def requeue(attempt: Attempt, reason: Reason) -> None:
    """Put the work of an ended attempt back into the queue; after too many fruitless attempts it fails."""
    if attempt.build_id is not None:
        _requeue_build(attempt.build_id, reason)
    elif attempt.session_id is not None:
        _requeue_session(attempt.session_id, reason)
    elif attempt.power_cycle_id is not None:
        _requeue_power_cycle(attempt.power_cycle_id, reason)


def _requeue_build(pk: int, reason: Reason) -> None:
    build = Build.objects.select_for_update().get(pk=pk)
    if build.state in {BuildState.DISPATCHED, BuildState.RUNNING}:
        given_up = fruitless_attempts(build) >= MAX_FRUITLESS_ATTEMPTS
        state = BuildState.FAILED if given_up else BuildState.WANTED
        build.advance(state, _given_up(reason) if given_up else reason, given_up=given_up)


def _requeue_session(pk: int, reason: Reason) -> None:
    session = Session.objects.select_for_update().get(pk=pk)
    if session.state not in {SessionState.DISPATCHED, SessionState.RUNNING}:
        return
    for boot in session.boots.filter(state=BootState.RUNNING):
        boot.advance(BootState.PLANNED, reason)
    if fruitless_attempts(session) >= MAX_FRUITLESS_ATTEMPTS:
        end_session(session, SessionState.FAILED, _given_up(reason))
    else:
        session.advance(SessionState.PLANNED, reason)


def _requeue_power_cycle(pk: int, reason: Reason) -> None:
    cycle = PowerCycle.objects.select_for_update().get(pk=pk)
    if cycle.state not in {PowerCycleState.DISPATCHED, PowerCycleState.RUNNING}:
        return
    if fruitless_attempts(cycle) >= _MOST_POWER_CYCLE_ATTEMPTS:
        end_power_cycle(cycle, False, reason)
    else:
        cycle.advance(PowerCycleState.WANTED, reason)


def _given_up(reason: Reason) -> Reason:
    return Because.GIVEN_UP(f"given up after {MAX_FRUITLESS_ATTEMPTS} attempts without progress: {reason}")


def end_session(session: Session, state: str, reason: Reason, *, keep: bool = True) -> bool:
    """End a session that will not boot any more, with all its open boots; wakes who judges it.

    One that was done already and boots more has its result: where it is to fail, what it has measured stays, and it is
    concluded. Not so without `keep`: for reasons that speak against what it has measured.
    """
    with transaction.atomic():
        fields: dict[str, Any] = {}
        if state == SessionState.FAILED and keep and was_done(session):
            state, reason = SessionState.DONE, reason.told(f"cut short: {reason}")
            fields = {"concluded_at": clock.now(), "cut_short": True}
        if not session.advance(state, reason, **fields):
            return False
        for boot in session.boots.filter(state__in=[BootState.PLANNED, BootState.RUNNING]):
            boot.advance(BootState.FAILED, Because.SESSION_OVER("not booted: the session ended"))
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


# How an agent ends that somebody has told to.
_STOPPED = "stopped"
# How one ends that the lab or the service failed.
_INFRASTRUCTURE = "infrastructure"


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
    code = {_INFRASTRUCTURE: Because.INFRASTRUCTURE, _STOPPED: Because.STOPPED}.get(outcome, Because.ENDED)
    said = code(f"{outcome}: {reason}" if reason else outcome)
    with transaction.atomic():
        lock_attempt(attempt)
        if attempt.agent != agent or attempt.state not in {AttemptState.RUNNING, AttemptState.CANCELING}:
            return
        if attempt.state == AttemptState.CANCELING and not _has_result(attempt):
            finish_canceled(attempt, attempt.said.told(f"{attempt.reason}; its agent ended: {said}"))
            return
        if outcome == _STOPPED:
            if move_attempt(attempt, AttemptState.CANCELED, said):
                requeue(attempt, said.told(f"{attempt.key} was {said}"))
            return
        if not move_attempt(attempt, AttemptState.DONE, said):
            return
        if attempt.power_cycle is not None:
            end_power_cycle(attempt.power_cycle, outcome == "done", reason)
        else:
            requeue(attempt, said.told(f"{attempt.key} ended without all results: {reason or outcome}"))
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


def cancel_attempt(attempt: Attempt, reason: Reason, *, losing: bool = False) -> bool:
    """Have the attempt stopped; False if it is over or being stopped already.

    `losing` is for trouble: its work is planned again when it is over. Else nobody wants the work any more.
    """
    if attempt.state not in UNCLAIMED | {AttemptState.RUNNING}:
        return False
    if not move_attempt(attempt, AttemptState.CANCELING, reason, losing=losing):
        return False
    enqueue("lab.dispatch")
    return True


def finish_canceled(attempt: Attempt, reason: Reason) -> bool:
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


def welcome(host: Machine | Builder, hello: HostHello) -> None:
    """A host says that it is there. A machine that is back before anybody began to switch it off is not switched,
    unless a person wants it.
    """
    note_hello(host, hello)
    if not isinstance(host, Machine) or host.state != State.POWER_CYCLING or hello.key or hello.safe is False:
        return
    told = Because.NOT_WANTED(f"{host.name} is back by itself")
    with transaction.atomic():
        waits = PowerCycle.objects.select_for_update().filter(
            machine=host, state__in=[PowerCycleState.WANTED, PowerCycleState.DISPATCHED]
        )
        cycle = waits.first()
        if cycle is None or not _may_be_called_off(cycle) or not cycle.advance(PowerCycleState.CANCELED, told):
            return
        for attempt in cycle.attempts.filter(state__in=Attempt.ACTIVE):
            cancel_attempt(attempt, told)
        change_state(host, State.IDLE, "it said hello")


def _may_be_called_off(cycle: PowerCycle) -> bool:
    # One that is lost may be at it yet: its host was only not heard.
    begun = cycle.attempts.exclude(agent="", arrived_at=None)
    by_person = Transition.objects.filter(subject="powercycle", subject_id=cycle.pk).exclude(actor="")
    return not begun.exists() and not by_person.exists()


def lose_attempt(attempt: Attempt, reason: Reason) -> bool:
    """End an attempt that gave no result and plan its work again, or give the work up.

    What that says about its host is concluded here as well.
    """
    with transaction.atomic():
        lock_attempt(attempt)
        if attempt.state not in Attempt.ACTIVE or not move_attempt(attempt, AttemptState.LOST, reason):
            return False
        requeue(attempt, reason.told(f"{attempt.key} lost: {reason}"))
        after_lost(attempt, reason)
    return True

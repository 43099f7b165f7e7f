"""Attempts: what agents ask of them, and how their work goes on when they end."""

import re
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import Count, Q, Value
from django.db.models.functions import Concat, Right

from server.builds.models import Build, BuildState
from server.builds.services import cancel_unwanted
from server.core import clock
from server.core.errors import DomainError
from server.core.models import ApiToken
from server.core.tasks import enqueue
from server.lab.dispatch.base import Kind, Work
from server.lab.models import Attempt, AttemptState, BootState, Machine, Session, SessionState
from server.sources.models import SeriesState

log = structlog.get_logger(__name__)

# Attempts that ended without any progress before the work is given up.
MAX_FRUITLESS_ATTEMPTS = 8
_KEY = re.compile(r"(build|session)-[0-9-]{1,50}")
LOCAL_BUILDER = "local-builder"
# What is kept of an agent's log: the end says why it stopped.
MAX_LOG_CHARACTERS = 64 * 1024


def work_of(attempt: Attempt) -> Work:
    if attempt.session is not None:
        machine = attempt.session.machine
        return Work(attempt.key, ApiToken.Scope.MACHINE, machine.name, Kind.SESSION, machine.node_name)
    return Work(attempt.key, ApiToken.Scope.BUILDER, LOCAL_BUILDER, Kind.BUILD, LOCAL_BUILDER)


def lose_attempt(attempt: Attempt, reason: str) -> None:
    """End an attempt that gave no result and plan its work again, or give the work up."""
    with transaction.atomic():
        if attempt.advance(AttemptState.LOST, reason):
            requeue(attempt, f"{attempt.key} lost: {reason}")


def requeue(attempt: Attempt, reason: str) -> None:
    """Put the work of an ended attempt back into the queue; after too many fruitless attempts it fails."""
    if attempt.build_id is not None:
        build = Build.objects.select_for_update().get(pk=attempt.build_id)
        if build.state in {BuildState.DISPATCHED, BuildState.RUNNING}:
            given_up = fruitless_attempts(build) >= MAX_FRUITLESS_ATTEMPTS
            state = BuildState.FAILED if given_up else BuildState.WANTED
            build.advance(state, _given_up(reason, given_up=given_up), given_up=given_up)
        return
    assert attempt.session_id is not None
    session = Session.objects.select_for_update().get(pk=attempt.session_id)
    if session.state not in {SessionState.DISPATCHED, SessionState.RUNNING}:
        return
    for boot in session.boots.filter(state=BootState.RUNNING):
        boot.advance(BootState.PLANNED, reason)
    if fruitless_attempts(session) >= MAX_FRUITLESS_ATTEMPTS:
        end_session(session, SessionState.FAILED, _given_up(reason, given_up=True))
    else:
        session.advance(SessionState.PLANNED, reason)


def _given_up(reason: str, *, given_up: bool) -> str:
    return f"given up after {MAX_FRUITLESS_ATTEMPTS} attempts without progress: {reason}" if given_up else reason


def fruitless_attempts(item: Build | Session) -> int:
    """Attempts for the present cause of a build; of a session those since the last boot that ended with a result."""
    if isinstance(item, Build):
        return item.attempts.filter(trace=item.trace).count()
    ended = item.boots.filter(state__in=[BootState.MEASURED, BootState.FAILED]).order_by("-state_since")
    last = ended.values_list("state_since", flat=True).first()
    attempts = item.attempts.all()
    return (attempts.filter(created_at__gt=last) if last else attempts).count()


# --- what agents ask ------------------------------------------------------------------


def find_attempt(*, key: str, token: ApiToken) -> Attempt:
    """The attempt that this token may touch; one that it may not is as unknown as one that is not there."""
    attempt = (
        Attempt.objects.filter(key=key if _KEY.fullmatch(key) else "")
        .select_related(
            "build__revision__tree",
            "build__config",
            "build__toolchain",
            "session__machine__config",
            "session__base_build",
            "session__patched_build",
            "session__series",
        )
        .first()
    )
    if attempt is None:
        raise DomainError("not-found", f"no attempt {key}")
    work = work_of(attempt)
    if token.scope != work.scope or token.subject != work.subject:
        raise DomainError("not-found", f"no attempt {key} for the holder of this token")
    return attempt


def claim_attempt(*, attempt: Attempt, agent: str) -> None:
    """Give the attempt to this agent process. Raises `superseded` when it is over or another agent has it."""
    if attempt.state == AttemptState.RUNNING and attempt.agent == agent:
        return
    if attempt.state not in {AttemptState.SUBMITTING, AttemptState.QUEUED}:
        raise DomainError("superseded", f"{attempt.key} is {attempt.state}: {attempt.reason}")
    with transaction.atomic():
        won = attempt.advance(
            AttemptState.RUNNING, f"claimed by agent {agent[:8]}", agent=agent, lease_until=_lease_end()
        )
        work = attempt.build or attempt.session
        assert work is not None
        if won and not (work.state == "dispatched" and work.advance("running", f"agent of {attempt.key} works")):
            # A result out of the spool ended the work before this attempt came to it.
            attempt.advance(AttemptState.CANCELED, f"the {work._meta.model_name} is over already")
            won = False
    if not won:
        raise DomainError("superseded", f"{attempt.key} went to another agent or its work is over")


def renew_lease(*, attempt: Attempt, agent: str, progress: str, away_seconds: int = 0, log: str = "") -> bool:
    """A heartbeat; returns whether the agent should go on. Raises `superseded` when the attempt is not its own.

    `away_seconds` is how long the machine may be silent on top of the lease, `log` what was logged since the last one.
    """
    held = Attempt.objects.filter(pk=attempt.pk, state=AttemptState.RUNNING, agent=agent)
    fields: dict[str, Any] = {"log": Right(Concat("log", Value(log)), MAX_LOG_CHARACTERS)} if log else {}
    renewed = held.update(lease_until=_lease_end() + timedelta(seconds=away_seconds), progress=progress[:200], **fields)
    if renewed != 1:
        raise DomainError("superseded", f"{attempt.key} is not held by this agent any more")
    return is_wanted(attempt)


def is_wanted(attempt: Attempt) -> bool:
    """Whether anyone still wants the result: a superseded series or an ended session wants none."""
    session = attempt.session
    if session is None:
        return Build.objects.filter(pk=attempt.build_id or 0, state=BuildState.RUNNING).exists()
    session.refresh_from_db(fields=["state"])
    if session.series is not None:
        session.series.refresh_from_db(fields=["state"])
        if session.series.state == SeriesState.SUPERSEDED:
            return False
    return session.state == SessionState.RUNNING


def end_attempt(*, attempt: Attempt, agent: str, outcome: str, reason: str) -> None:
    """The agent stops. Work that has no result yet is planned again. Repeating it is harmless."""
    with transaction.atomic():
        if attempt.state != AttemptState.RUNNING or attempt.agent != agent:
            return
        if attempt.advance(AttemptState.DONE, f"{outcome}: {reason}" if reason else outcome):
            requeue(attempt, f"{attempt.key} ended without all results: {reason or outcome}")


def cancel_superseded() -> int:
    """Cancel what waits for series that a newer version replaced; returns how many builds and sessions.

    What runs already learns it from its next heartbeat. Builds that others want as well stay.
    """
    sessions = Session.objects.filter(
        Q(state=SessionState.PLANNED) | Q(state=SessionState.DISPATCHED), series__state=SeriesState.SUPERSEDED
    ).annotate(active=Count("attempts", filter=Q(attempts__state=AttemptState.RUNNING)))
    reason = "a newer version of the series arrived"
    ended = sum(end_session(session, SessionState.CANCELED, reason) for session in sessions if not session.active)
    ended += cancel_unwanted(reason)
    _cancel_unclaimed(reason)
    return ended


def _cancel_unclaimed(reason: str) -> None:
    """Cancel attempts at canceled work that no agent has claimed; one that comes for it is told that it is over."""
    over = Q(build__state=BuildState.CANCELED) | Q(session__state=SessionState.CANCELED)
    for attempt in Attempt.objects.filter(over, state__in=[AttemptState.SUBMITTING, AttemptState.QUEUED]):
        attempt.advance(AttemptState.CANCELED, reason)


def fail_stranded() -> int:
    """Fail waiting sessions of machines that are out of service: the others' results must not wait for them."""
    stranded = Session.objects.filter(state=SessionState.PLANNED).exclude(
        machine__enabled=True, machine__health=Machine.Health.GOOD
    )
    failed = 0
    for session in stranded.select_related("machine"):
        machine = session.machine
        why = f"quarantined: {machine.health_reason}" if machine.enabled else "disabled"
        failed += end_session(session, SessionState.FAILED, f"machine {machine.name} is {why}")
    return failed


def end_session(session: Session, state: str, reason: str) -> bool:
    """End a session that will not boot any more, with all its open boots; wakes the judge of its series."""
    with transaction.atomic():
        if not session.advance(state, reason):
            return False
        for boot in session.boots.filter(state__in=[BootState.PLANNED, BootState.RUNNING]):
            boot.advance(BootState.FAILED, "not booted: the session ended")
        if session.series_id is not None:
            enqueue("detection.judge", session.series_id)
    return True


def _lease_end() -> datetime:
    return clock.now() + timedelta(seconds=settings.LEASE_SECONDS)

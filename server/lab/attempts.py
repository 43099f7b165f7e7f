"""Attempts: placing work on the dispatcher, reconciling with what it says, claims and heartbeats of agents."""

from collections.abc import Iterable
from datetime import datetime, timedelta

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import Count, Q, Sum

from server.builds.models import Build, BuildState
from server.core import clock
from server.core.errors import DomainError
from server.core.models import ApiToken
from server.lab.dispatch import dispatcher
from server.lab.dispatch.base import Dispatcher, DispatchError, Observed, Work
from server.lab.models import Attempt, AttemptState, BootState, Machine, Session, SessionState
from server.sources.models import SeriesState

log = structlog.get_logger(__name__)

# Attempts that ended without any progress before the work is given up.
MAX_FRUITLESS_ATTEMPTS = 8
_LONGEST_WAIT_SECONDS = 60
# An agent takes its lock within this time after it was started.
_START_GRACE = timedelta(seconds=10)
# How long an agent that lives but is silent keeps its work, in leases.
_SILENT_LEASES = 5
LOCAL_BUILDER = "local-builder"


def work_of(attempt: Attempt) -> Work:
    if attempt.session is not None:
        return Work(attempt.key, ApiToken.Scope.MACHINE, attempt.session.machine.name)
    return Work(attempt.key, ApiToken.Scope.BUILDER, LOCAL_BUILDER)


def active_attempts() -> list[Attempt]:
    return list(
        Attempt.objects.filter(state__in=Attempt.ACTIVE).select_related("build", "session__machine").order_by("id")
    )


# --- placing ------------------------------------------------------------------


def place_work() -> list[Attempt]:
    """Give waiting builds, then waiting sessions, to the dispatcher as far as its capacity goes."""
    port = dispatcher()
    free = settings.LOCAL_SLOTS - (
        Attempt.objects.filter(state__in=Attempt.ACTIVE).aggregate(total=Sum("slots"))["total"] or 0
    )
    placed = []
    waiting: list[Build | Session] = [*_waiting_builds(), *_waiting_sessions()]
    for item in waiting:
        slots = min(settings.LOCAL_SLOTS, _slots(item))
        if slots > free:
            # Nothing smaller overtakes: a build that needs the whole host would otherwise wait for ever.
            break
        attempt = _open_attempt(item, port.name, slots)
        if attempt is not None:
            free -= slots
            placed.append(attempt)
            submit(attempt, port)
    return placed


def _waiting_builds() -> Iterable[Build]:
    waiting = Build.objects.filter(state=BuildState.WANTED).order_by("id")
    return [build for build in waiting if _is_due(build, _fruitless_attempts(build))]


def _waiting_sessions() -> Iterable[Session]:
    """Planned sessions whose machine is free, one for each machine, oldest first."""
    busy = Attempt.objects.filter(state__in=Attempt.ACTIVE, session__isnull=False).values("session__machine")
    waiting = (
        Session.objects.filter(state=SessionState.PLANNED, machine__enabled=True)
        .filter(machine__health=Machine.Health.GOOD)
        .exclude(machine__in=busy)
        .select_related("machine")
        .order_by("id")
    )
    first_of_machine: dict[int, Session] = {}
    for session in waiting:
        if session.machine_id not in first_of_machine and _is_due(session, _fruitless_attempts(session)):
            first_of_machine[session.machine_id] = session
    return first_of_machine.values()


def _is_due(item: Build | Session, fruitless: int) -> bool:
    """Work that came back without progress waits 1, 2, 4 ... seconds, so that a broken host is not hammered."""
    wait = timedelta(seconds=min(2 ** (fruitless - 1), _LONGEST_WAIT_SECONDS)) if fruitless else timedelta()
    return clock.now() - item.state_since >= wait


def _slots(item: Build | Session) -> int:
    """A compiler uses all CPUs; a machine on the wall clock wants a quiet host; counted instructions need one CPU."""
    alone = isinstance(item, Build) or item.machine.clock == Machine.Clock.WALL
    return int(settings.LOCAL_SLOTS) if alone else 1


def _open_attempt(item: Build | Session, adapter: str, slots: int) -> Attempt | None:
    """Commit the attempt before anything is started outside; None if another process was first."""
    kind = "build" if isinstance(item, Build) else "session"
    with transaction.atomic():
        number = item.attempts.count() + 1
        if not item.advance("dispatched", f"attempt {number}"):
            return None
        return Attempt.objects.create(
            key=f"{kind}-{item.pk}-{number}",
            number=number,
            build=item if isinstance(item, Build) else None,
            session=item if isinstance(item, Session) else None,
            adapter=adapter,
            slots=slots,
            state=AttemptState.SUBMITTING,
            trace=item.trace,
        ).record_creation()


def submit(attempt: Attempt, port: Dispatcher) -> None:
    """Hand a committed attempt over. A failure leaves it in `submitting`: the next round tries again."""
    try:
        port.submit(work_of(attempt))
    except DispatchError as error:
        log.warning("submit_failed", key=attempt.key, trace=attempt.trace, code=error.code, error=error.message)
        if error.permanent:
            lose_attempt(attempt, error.message)
        return
    attempt.advance(AttemptState.QUEUED, f"started by the {port.name} dispatcher")


# --- reconciling ------------------------------------------------------------------


def reconcile_attempts() -> None:
    """Hold every active attempt against what the dispatcher sees; work of the dead goes back into the queue."""
    port = dispatcher()
    attempts = active_attempts()
    observed = port.observe([work_of(attempt) for attempt in attempts])
    for attempt in attempts:
        _reconcile(attempt, observed[attempt.key], port)


def _reconcile(attempt: Attempt, seen: Observed, port: Dispatcher) -> None:
    now = clock.now()
    if seen is Observed.ALIVE:
        silent_since = attempt.lease_until
        patience = timedelta(seconds=settings.LEASE_SECONDS * _SILENT_LEASES)
        if silent_since is not None and now - silent_since > patience:
            port.cancel(work_of(attempt))
            lose_attempt(attempt, "the agent lives but has been silent for too long")
        elif attempt.state == AttemptState.SUBMITTING:
            attempt.advance(AttemptState.QUEUED, "found running")
    elif attempt.state == AttemptState.SUBMITTING:
        submit(attempt, port)
    elif attempt.state == AttemptState.RUNNING or now - attempt.state_since > _START_GRACE:
        lose_attempt(attempt, "the agent ended without a report")


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
            given_up = _fruitless_attempts(build) >= MAX_FRUITLESS_ATTEMPTS
            state = BuildState.FAILED if given_up else BuildState.WANTED
            build.advance(state, _given_up(reason, given_up=given_up), given_up=given_up)
        return
    assert attempt.session_id is not None
    session = Session.objects.select_for_update().get(pk=attempt.session_id)
    if session.state not in {SessionState.DISPATCHED, SessionState.RUNNING}:
        return
    for boot in session.boots.filter(state=BootState.RUNNING):
        boot.advance(BootState.PLANNED, reason)
    given_up = _fruitless_attempts(session) >= MAX_FRUITLESS_ATTEMPTS
    session.advance(SessionState.FAILED if given_up else SessionState.PLANNED, _given_up(reason, given_up=given_up))
    if given_up:
        for boot in session.boots.filter(state=BootState.PLANNED):
            boot.advance(BootState.FAILED, "not booted: the session was given up")


def _given_up(reason: str, *, given_up: bool) -> str:
    return f"given up after {MAX_FRUITLESS_ATTEMPTS} attempts without progress: {reason}" if given_up else reason


def _fruitless_attempts(item: Build | Session) -> int:
    """Attempts for the present cause of a build; of a session those since the last boot that ended with a result."""
    if isinstance(item, Build):
        return item.attempts.filter(trace=item.trace).count()
    last = item.boots.exclude(ended_at=None).order_by("-ended_at").values_list("ended_at", flat=True).first()
    attempts = item.attempts.all()
    return (attempts.filter(created_at__gt=last) if last else attempts).count()


# --- what agents ask ------------------------------------------------------------------


def find_attempt(*, key: str, token: ApiToken) -> Attempt:
    """The attempt that this token may touch; one that it may not is as unknown as one that is not there."""
    attempt = (
        Attempt.objects.filter(key=key)
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
        if won and work.state != "dispatched":
            # A result out of the spool ended the work before this attempt came to it.
            attempt.advance(AttemptState.CANCELED, f"the {work._meta.model_name} is {work.state} already")
            won = False
        if won:
            work.advance("running", f"agent of {attempt.key} works")
    if not won:
        raise DomainError("superseded", f"{attempt.key} went to another agent or its work is over")


def renew_lease(*, attempt: Attempt, agent: str, progress: str) -> bool:
    """A heartbeat; returns whether the agent should go on. Raises `superseded` when the attempt is not its own."""
    renewed = Attempt.objects.filter(pk=attempt.pk, state=AttemptState.RUNNING, agent=agent).update(
        lease_until=_lease_end(), progress=progress[:200]
    )
    if renewed != 1:
        raise DomainError("superseded", f"{attempt.key} is not held by this agent any more")
    return is_wanted(attempt)


def is_wanted(attempt: Attempt) -> bool:
    """Whether anyone still wants the result: a superseded series or an ended session wants none."""
    session = attempt.session
    if session is None:
        return True
    session.refresh_from_db(fields=["state"])
    session.series.refresh_from_db(fields=["state"])
    return session.state == SessionState.RUNNING and session.series.state != SeriesState.SUPERSEDED


def end_attempt(*, attempt: Attempt, agent: str, outcome: str, reason: str) -> None:
    """The agent stops. Work that has no result yet is planned again. Repeating it is harmless."""
    with transaction.atomic():
        if attempt.state != AttemptState.RUNNING or attempt.agent != agent:
            return
        if attempt.advance(AttemptState.DONE, f"{outcome}: {reason}" if reason else outcome):
            requeue(attempt, f"{attempt.key} ended without all results: {reason or outcome}")


def cancel_superseded() -> int:
    """Cancel waiting sessions of series that a newer version replaced; running ones learn it from a heartbeat."""
    sessions = Session.objects.filter(
        Q(state=SessionState.PLANNED) | Q(state=SessionState.DISPATCHED), series__state=SeriesState.SUPERSEDED
    ).annotate(active=Count("attempts", filter=Q(attempts__state=AttemptState.RUNNING)))
    return sum(
        session.advance(SessionState.CANCELED, "a newer version of the series arrived")
        for session in sessions
        if not session.active
    )


def _lease_end() -> datetime:
    return clock.now() + timedelta(seconds=settings.LEASE_SECONDS)

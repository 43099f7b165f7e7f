"""The dispatcher's round: hold active attempts against what it sees, and place waiting work on it."""

from collections.abc import Iterable
from datetime import datetime, timedelta

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import Sum

from server.builds.models import Build, BuildState
from server.core import clock
from server.lab.attempts import fruitless_attempts, lose_attempt, work_of
from server.lab.dispatch import dispatcher
from server.lab.dispatch.base import Dispatcher, DispatchError, Observed
from server.lab.models import Attempt, AttemptState, Machine, Session, SessionState

log = structlog.get_logger(__name__)

_LONGEST_WAIT_SECONDS = 60
# An agent takes its lock within this time after it was started.
_START_GRACE = timedelta(seconds=10)
# How long an agent that lives but is silent keeps its work after its lease: longer than the web is ever away, or an
# outage of the service would kill agents that measure well.
_SILENCE = timedelta(minutes=30)
# The boot driver whose agent runs outside of the machine that it boots.
_OUTSIDE = "qemu"


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
    waiting = Build.objects.filter(state=BuildState.WANTED).order_by("-revision__tree__priority", "id")
    return [build for build in waiting if _is_due(build, fruitless_attempts(build))]


def _waiting_sessions() -> Iterable[Session]:
    """Planned sessions whose machine is free, one for each machine: trees of high priority first, then the oldest."""
    busy = Attempt.objects.filter(state__in=Attempt.ACTIVE, session__isnull=False).values("session__machine")
    waiting = (
        Session.objects.filter(state=SessionState.PLANNED, machine__enabled=True)
        .filter(machine__health=Machine.Health.GOOD)
        .exclude(machine__in=busy)
        .select_related("machine")
        .order_by("-series__base__tree__priority", "id")
    )
    first_of_machine: dict[int, Session] = {}
    for session in waiting:
        if session.machine_id not in first_of_machine and _is_due(session, fruitless_attempts(session)):
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
            machine=item.machine if isinstance(item, Session) else None,
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
        else:
            Attempt.objects.filter(pk=attempt.pk, state=AttemptState.SUBMITTING).update(reason=error.message)
        return
    attempt.advance(AttemptState.QUEUED, f"started by the {port.name} dispatcher")


# --- reconciling ------------------------------------------------------------------


def reconcile_attempts() -> None:
    """Hold every active attempt against what the dispatcher sees; work of the dead goes back into the queue."""
    port = dispatcher()
    attempts = active_attempts()
    look = port.look([work_of(attempt) for attempt in attempts])
    for attempt in attempts:
        _reconcile(attempt, look.works[attempt.key].observed, port)


def _is_away(attempt: Attempt, now: datetime) -> bool:
    """A machine that measures itself is gone for its dispatcher while it reboots; its lease says for how long."""
    boots_itself = attempt.session is not None and attempt.session.machine.boot_driver != _OUTSIDE
    return boots_itself and attempt.lease_until is not None and attempt.lease_until > now


def _reconcile(attempt: Attempt, seen: Observed, port: Dispatcher) -> None:
    now = clock.now()
    if seen is Observed.ALIVE:
        silent_since = attempt.lease_until
        if silent_since is not None and now - silent_since > _SILENCE:
            port.cancel(work_of(attempt))
            lose_attempt(attempt, "the agent lives but has been silent for too long")
        elif attempt.state == AttemptState.SUBMITTING:
            attempt.advance(AttemptState.QUEUED, "found running")
    elif attempt.state == AttemptState.SUBMITTING:
        submit(attempt, port)
    elif _is_away(attempt, now):
        return
    elif attempt.state == AttemptState.RUNNING or now - attempt.state_since > _START_GRACE:
        lose_attempt(attempt, "the agent ended without a report")

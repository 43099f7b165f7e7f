"""The life of an attempt: opened, claimed, kept by heartbeats; who moves one holds still what it concerns."""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any

import structlog
from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import CharField, Exists, Max, Q, Value
from django.db.models.functions import Concat, Right

from server.builds.models import Build, BuildState
from server.core import clock
from server.core.errors import DomainError
from server.core.models import ApiToken
from server.core.reasons import Because, Reason
from server.core.rows.prepared import Given, Prepared
from server.lab.hosts.state import follow_attempt
from server.lab.models import (
    Attempt,
    AttemptState,
    Builder,
    Machine,
    PowerCycle,
    PowerCycleState,
    Session,
    SessionState,
    TrialState,
)
from server.lab.port import BY_ITSELF, Origin, dispatcher_of
from server.lab.scheduling.placement import Placement
from server.lab.work import claim_deadline, end_deadline, kind_of, work_of
from server.sources.models import SeriesState

# States in which an agent may come for an attempt.
UNCLAIMED = frozenset({AttemptState.SUBMITTING, AttemptState.QUEUED})


def lock_attempt(attempt: Attempt) -> None:
    """Hold the attempt's work and the attempt still to the end of the transaction, and read how the attempt is by now.

    Everybody takes them in this order, hosts after them: so nobody waits for somebody who waits for them.
    """
    for model, pk in ((Build, attempt.build_id), (Session, attempt.session_id), (PowerCycle, attempt.power_cycle_id)):
        if pk is not None:
            list(model._default_manager.select_for_update(of=("self",)).filter(pk=pk).values_list("pk"))
    rows = Attempt.objects.select_for_update(of=("self",))
    attempt.refresh_from_db(
        fields=["state", "reason", "reason_code", "agent", "losing", "arrived_at", "lease_until"], from_queryset=rows
    )


def move_attempt(attempt: Attempt, to: str, reason: Reason, **fields: Any) -> bool:
    """Advance the attempt, and the state of its host with it; False, and nothing is changed, if it moved meanwhile."""
    with transaction.atomic():
        if not attempt.advance(to, reason, **fields):
            return False
        follow_attempt(attempt)
    return True


log = structlog.get_logger(__name__)


def open_attempt(placement: Placement, adapter: str) -> Attempt | None:
    """Commit the attempt before anything is started outside; None if another process was first."""
    try:
        with transaction.atomic():
            return _open(placement, adapter)
    except IntegrityError as error:
        # The machine has another attempt by now: two dispatchers chose different sessions for it.
        log.info("placement_taken", item=str(placement.item), error=str(error).partition("\n")[0])
        return None


def _open(placement: Placement, adapter: str) -> Attempt | None:
    item, host = placement.item, placement.host
    # Not their count: a key must never be given out twice, whatever became of older attempts.
    number = (item.attempts.aggregate(last=Max("number"))["last"] or 0) + 1
    if not item.advance("dispatched", Because.ATTEMPT_OPENED(f"attempt {number}")):
        return None
    if host is not None and not _still_fits(item, host):
        transaction.set_rollback(True)
        log.info("placement_withdrawn", item=str(item), host=host.name)
        return None
    attempt = Attempt.objects.create(
        key=f"{kind_of(item)}-{item.pk}-{number}",
        number=number,
        build=item if isinstance(item, Build) else None,
        session=item if isinstance(item, Session) else None,
        power_cycle=item if isinstance(item, PowerCycle) else None,
        builder=host if isinstance(host, Builder) else None,
        machine=host if isinstance(host, Machine) and isinstance(item, Session) else None,
        adapter=adapter,
        slots=placement.slots,
        state=AttemptState.SUBMITTING,
        trace=item.trace,
        deadline_at=claim_deadline(),
    ).record_creation()
    follow_attempt(attempt)
    return attempt


def _still_fits(item: Build | Session | PowerCycle, host: Builder | Machine) -> bool:
    """Whether the host is as it was when it was chosen, and still that of the work.

    A round goes on for a while after its decision: a person may have taken the host out of service since, or the sweep
    given the session to a sister machine. Both are held still until the attempt is committed.
    """
    if isinstance(item, Session) and not Session.objects.filter(pk=item.pk, machine=host.pk).exists():
        return False
    rows = type(host)._default_manager.select_for_update(of=("self",))
    if not rows.filter(pk=host.pk, enabled=host.enabled, health=host.health).exists():
        return False
    # Where nothing holds it in quarantine any more, sessions of equal kernels do not go there either.
    return isinstance(host, Builder) or Machine.objects.filter(pk=host.pk, health_hold=host.health_hold).exists()


def check_origin(attempt: Attempt, origin: Origin) -> None:
    """Raise `job-edited` where what brought the attempt is not what we defined; what was found is noted first.

    Not called in a transaction that its error would undo. A key that its machine took in came from one that passed.
    """
    if attempt.state in UNCLAIMED and attempt.arrived_at is None:
        dispatcher_of(attempt.adapter).check_origin(work_of(attempt), origin)


# What an agent's requests need of an attempt. Texts of many kilobytes are left out: there is one each few seconds of
# each host.
ALL_OF_ATTEMPT = (
    "build__revision__tree",
    "build__config",
    "build__toolchain",
    "builder",
    "machine",
    "power_cycle__machine",
    "session__machine__config",
    "session__base_build",
    "session__patched_build",
    "session__series",
)
# Whose it is, for a request that reads the rest under a lock.
HOST_OF_ATTEMPT = ("builder", "session__machine")
_LONG_OF_BUILD = ("log_tail", "first_error")
_BUILDS = ("build", "session__base_build", "session__patched_build")
_KEY = re.compile(r"(build|session|power-cycle)-[0-9-]{1,50}")

# An answer that was lost on its way is asked for again by then.
_ASKS_AGAIN = timedelta(minutes=10)


def find_attempt(*, key: str, token: ApiToken, related: Sequence[str] = ALL_OF_ATTEMPT) -> Attempt:
    """The attempt that this token may touch; one that it may not is as unknown as one that is not there."""
    attempt = _by_key(related).first(key=key if _KEY.fullmatch(key) else "")
    if attempt is None:
        raise DomainError("not-found", f"no attempt {key}")
    work = work_of(attempt)
    if token.scope != work.scope or token.subject != work.subject:
        raise DomainError("not-found", f"no attempt {key} for the holder of this token")
    return attempt


@cache
def _by_key(related: Sequence[str]) -> Prepared[Attempt]:
    long = [f"{build}__{text}" for build in _BUILDS if _is_read(build, related) for text in _LONG_OF_BUILD]
    rows = Attempt.objects.filter(key=Given("key", CharField())).select_related(*related)
    return Prepared(lambda: rows.defer("log", *long).order_by())


def _is_read(row: str, related: Sequence[str]) -> bool:
    return any(path == row or path.startswith(f"{row}__") for path in related)


def claim_attempt(attempt: Attempt, agent: str, *, host: str = "", origin: Origin = BY_ITSELF) -> None:
    """Give the attempt to this agent process. Raises `superseded` when it is over or another agent has it.

    Raises `job-edited` where `origin` is not ours. Where one build has handed the attempt over to its machine, another
    build of the same key gets nothing.
    """
    check_origin(attempt, origin)
    with transaction.atomic():
        lock_attempt(attempt)
        if attempt.state == AttemptState.RUNNING and attempt.agent == agent:
            return
        if attempt.state not in UNCLAIMED:
            raise DomainError("superseded", f"{attempt.key} is {attempt.state}: {attempt.reason}")
        if origin.number is not None:
            dispatcher_of(attempt.adapter).record_arrival(
                work_of(attempt), origin, again=attempt.arrived_at is not None
            )
        won = _take(attempt, agent, host)
    if not won:
        raise DomainError("superseded", f"{attempt.key} went to another agent or its work is over")


def _take(attempt: Attempt, agent: str, host: str) -> bool:
    fields = {"agent": agent, "host": host[:255], "lease_until": lease_end(), "deadline_at": end_deadline(attempt)}
    claimed = Because.CLAIMED(f"claimed by agent {agent[:8]}")
    won = move_attempt(attempt, AttemptState.RUNNING, claimed, **fields)
    work = attempt.build or attempt.session or attempt.power_cycle
    assert work is not None
    works = Because.CLAIMED(f"agent of {attempt.key} works")
    if won and not (work.state == "dispatched" and work.advance("running", works)):
        # A result out of the spool ended the work before this attempt came to it.
        move_attempt(attempt, AttemptState.CANCELED, Because.WORK_OVER(f"the {kind_of(work)} is over already"))
        return False
    return won


def allow_time(attempt: Attempt, boot_seconds: float) -> None:
    """Set when a claimed session is stopped, now that is known how long its agent gives one boot.

    An agent that asks again much later, whatever for, gets no more time by that.
    """
    lately = clock.now() - _ASKS_AGAIN
    Attempt.objects.filter(pk=attempt.pk, state=AttemptState.RUNNING, state_since__gte=lately).update(
        deadline_at=end_deadline(attempt, boot_seconds)
    )


def lease_end() -> datetime:
    return clock.now() + timedelta(seconds=settings.LEASE_SECONDS)


# What is kept of an agent's log: the end says why it stopped.
MAX_LOG_CHARACTERS = 64 * 1024


def renew_lease(*, attempt: Attempt, agent: str, progress: str, away_seconds: int = 0, log: str = "") -> bool:
    """A heartbeat; returns whether the agent should go on. Raises `superseded` when the attempt is not its own.

    `away_seconds` is how long the machine may be silent on top of the lease, `log` what was logged since the last one.
    An attempt that is being stopped keeps the lease that it has.
    """
    fields: dict[str, Any] = {"progress": progress[:200]}
    if log:
        fields["log"] = Right(Concat("log", Value(log)), MAX_LOG_CHARACTERS)
    held = Attempt.objects.filter(pk=attempt.pk, agent=agent)
    until = lease_end() + timedelta(seconds=away_seconds)
    if held.filter(state=AttemptState.RUNNING).update(lease_until=until, **fields):
        return is_wanted(attempt)
    if held.filter(state=AttemptState.CANCELING).update(**fields):
        return False
    raise DomainError("superseded", f"{attempt.key} is not held by this agent any more")


def is_wanted(attempt: Attempt) -> bool:
    """Whether anyone still wants the result: a superseded series, a canceled trial or an ended session wants none."""
    if attempt.power_cycle_id is not None:
        return PowerCycle.objects.filter(pk=attempt.power_cycle_id, state=PowerCycleState.RUNNING).exists()
    if attempt.session_id is None:
        return Build.objects.filter(pk=attempt.build_id or 0, state=BuildState.RUNNING).exists()
    session = Session.objects.filter(pk=attempt.session_id, state=SessionState.RUNNING)
    return session.exclude(unwanted(attempt.pk)).exists()


def unwanted(attempt: int | Given) -> Q:
    """Whether nobody wants what this attempt at a running session still brings, for queries of sessions."""
    superseded = Q(series__state=SeriesState.SUPERSEDED) | Q(trial__series__state=SeriesState.SUPERSEDED)
    stopping = Attempt.objects.filter(pk=attempt, state=AttemptState.CANCELING)
    return superseded | Q(trial__state=TrialState.CANCELED) | Q(Exists(stopping))

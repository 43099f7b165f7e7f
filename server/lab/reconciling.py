"""One attempt held against what the dispatcher sees of it. The lease is the truth about a running one."""

from datetime import timedelta

from django.conf import settings
from django.db import transaction

from server.core import clock
from server.lab.attempts import cancel_attempt, lock_attempt, lose_attempt, move_attempt
from server.lab.dispatch.base import Observed, Sighting
from server.lab.models import Attempt, AttemptState
from server.lab.works import boots_itself, is_leased

# An agent takes its lock within this time after it was started.
_START_GRACE = timedelta(seconds=10)
# How many leases long an agent that is known to live may be silent after its own: longer than the web is ever away, or
# an outage of the service would kill agents that measure well.
_SILENT_LEASES = 30
# The same for a machine of which nothing is seen since it took its attempt over: it may hang.
_AWAY_LEASES = 5
_FOUND = {
    Observed.WAITING: "found in the queue",
    Observed.ALIVE: "found running",
    Observed.HANDED_OVER: "found handed over",
}


def reconcile(attempt: Attempt, sighting: Sighting) -> None:
    """Move an attempt that is neither to be submitted nor being stopped as its sighting, lease and deadline say."""
    now = clock.now()
    if attempt.deadline_at is not None and now > attempt.deadline_at:
        _stop_overdue(attempt, sighting)
    elif attempt.state == AttemptState.SUBMITTING:
        _adopt(attempt, sighting)
    elif attempt.state == AttemptState.QUEUED:
        _await_claim(attempt, sighting)
    elif attempt.state == AttemptState.RUNNING:
        _await_end(attempt, sighting)


def _stop_overdue(attempt: Attempt, sighting: Sighting) -> None:
    if attempt.state == AttemptState.RUNNING:
        reason = "it did not end in time"
    elif attempt.arrived_at is not None:
        reason = "its machine took it in, and its agent never came for it"
    else:
        reason = "no agent came for it in time"
    cancel_attempt(attempt, _with(reason, sighting), losing=True)


def _adopt(attempt: Attempt, sighting: Sighting) -> None:
    """A worker died, or its controller's answer got lost, after the attempt was handed over."""
    found = _FOUND.get(sighting.observed)
    if found is not None:
        move_attempt(attempt, AttemptState.QUEUED, found)
    elif sighting.observed in {Observed.LEFT, Observed.ENDED} and not _just_began(attempt):
        lose(attempt, _with("it ended before its agent claimed it", sighting))


def _await_claim(attempt: Attempt, sighting: Sighting) -> None:
    if _just_began(attempt):
        return
    if attempt.arrived_at is None:
        # A build that ended well and handed nothing over found that another one had come first, or nothing to do.
        if sighting.observed in {Observed.ABSENT, Observed.LEFT, Observed.ENDED, Observed.HANDED_OVER}:
            lose(attempt, _with("the agent ended without a report", sighting))
    elif sighting.observed is Observed.LEFT:
        # The build failed before it handed the key over. One that vanished may have done it: its machine has its time.
        lose(attempt, _with("its machine did not take it over", sighting), never_left=True)


def _just_began(attempt: Attempt) -> bool:
    return clock.now() - attempt.state_since <= _START_GRACE


def _await_end(attempt: Attempt, sighting: Sighting) -> None:
    observed = sighting.observed
    if observed is Observed.ENDED and not _is_away(attempt):
        lose(attempt, _with("the agent ended without a report", sighting))
    elif observed in {Observed.ENDED, Observed.LEFT, Observed.ABSENT}:
        if not is_leased(attempt):
            lose(attempt, _with("its agent is gone", sighting))
    elif observed is Observed.HANDED_OVER:
        if _silent_for(attempt) > _AWAY_LEASES * settings.LEASE_SECONDS:
            lose(attempt, "its machine has not been heard of since it took it over")
    elif _silent_for(attempt) > _SILENT_LEASES * settings.LEASE_SECONDS:
        cancel_attempt(attempt, "the agent lives but has been silent for too long", losing=True)


def _silent_for(attempt: Attempt) -> float:
    """Seconds since its lease ended; negative while it holds."""
    until = attempt.lease_until or attempt.state_since
    return (clock.now() - until).total_seconds()


def _is_away(attempt: Attempt) -> bool:
    """A machine that boots itself is gone for its dispatcher while it reboots; its lease says for how long."""
    return attempt.session is not None and boots_itself(attempt.session.machine) and is_leased(attempt)


def _with(reason: str, sighting: Sighting) -> str:
    return f"{reason} ({sighting.detail})" if sighting.detail else reason


def lose(attempt: Attempt, reason: str, *, never_left: bool = False) -> None:
    """End it as lost, unless it moved or was heard of since it was read.

    `never_left`: its machine is where it was, so that nobody has to wait for it to come back.
    """
    before = _heard_of(attempt)
    with transaction.atomic():
        lock_attempt(attempt)
        if _heard_of(attempt) == before:
            if never_left:
                attempt.arrived_at = None
                attempt.save(update_fields=["arrived_at"])
            lose_attempt(attempt, reason)


def _heard_of(attempt: Attempt) -> tuple[object, ...]:
    return attempt.state, attempt.lease_until, attempt.arrived_at

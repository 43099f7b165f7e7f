"""The dispatcher's round: hold active attempts against what it sees, then place waiting work on it."""

import time
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import F, Q, Sum
from django.db.models.functions import Greatest

from server.core import clock
from server.core.reasons import Because
from server.lab.attempts.ends import cancel_attempt, finish_canceled, lose_attempt
from server.lab.attempts.life import lock_attempt, move_attempt, open_attempt
from server.lab.hosts.state import note_sightings
from server.lab.models import Attempt, AttemptState, Builder, Machine, RoundMark
from server.lab.port import Dispatcher, DispatchError, Observed, Sighting, Sightings, dispatcher
from server.lab.scheduling.placement import next_placements
from server.lab.work import boots_itself, is_leased, work_of

log = structlog.get_logger(__name__)

# Rounds are made several times a minute; a restart of the service after an update takes less.
_OUTAGE = timedelta(minutes=2)
# An agent says something once a minute at least; one whose machine boots just now has a longer lease by itself.
_GRACE = timedelta(minutes=5)


def begin_round(adapter: str) -> None:
    """Call it first in each round: after an outage every attempt gets the time back that it had no chance to use.

    Agents work on without the service and come back to it. Judged by leases that ended meanwhile, all of them would
    be lost in the first round after an outage, and their machines switched off while they measure.
    """
    now = clock.now()
    mark, new = RoundMark.objects.get_or_create(adapter=adapter, defaults={"last_at": now})
    if not new and now - mark.last_at > _OUTAGE:
        _give_back(mark, now)


def end_round(adapter: str) -> None:
    """Call it last, however the round ended: a round that takes long is no outage."""
    RoundMark.objects.filter(adapter=adapter).update(last_at=clock.now())


def _give_back(mark: RoundMark, now: datetime) -> None:
    with transaction.atomic():
        # Of two dispatchers one does it.
        if not RoundMark.objects.filter(pk=mark.pk, last_at=mark.last_at).update(last_at=now):
            return
        gap = now - mark.last_at
        active = Attempt.objects.filter(state__in=Attempt.ACTIVE, created_at__lt=now)
        active.filter(deadline_at__isnull=False).update(deadline_at=F("deadline_at") + gap)
        held = active.filter(state=AttemptState.RUNNING, lease_until__isnull=False)
        held.update(lease_until=Greatest(F("lease_until"), now + _GRACE))
    log.warning("service_was_away", adapter=mark.adapter, seconds=gap.total_seconds())


# Words that stand where a key stands for the hosts that no attempt holds.
QUARANTINE = "quarantine"
_ON_ITS_WAY = Q(state__in=[Machine.State.RETURNING, Machine.State.POWER_CYCLING])
_SICK = Q(health=Machine.Health.QUARANTINED)


def hosts_to_hold(active: Iterable[Attempt]) -> dict[str, str]:
    """Hosts by their dispatcher's name for them, each with the key or word for which it is held.

    A machine that boots itself is held from the moment it took an attempt over until it says that it is back. One that
    is in quarantine is held unless it is to prove itself by an attempt.
    """
    held = {}
    for host in (*Machine.objects.filter(_ON_ITS_WAY | _SICK), *Builder.objects.filter(_SICK)):
        held[host.node_name] = QUARANTINE if host.health == Machine.Health.QUARANTINED else host.state
    for attempt in active:
        name = work_of(attempt).host
        if _is_taken(attempt):
            held[name] = attempt.key
        else:
            held.pop(name, None)
    return held


def _is_taken(attempt: Attempt) -> bool:
    """Its machine has it and goes its own way."""
    if attempt.session is None or not boots_itself(attempt.session.machine):
        return False
    return attempt.arrived_at is not None or attempt.state == AttemptState.RUNNING


def submit(attempt: Attempt, port: Dispatcher) -> None:
    """Hand a committed attempt over. A failure leaves it in `submitting`: the next round tries again.

    One that trying again cannot mend loses the attempt.
    """
    try:
        port.submit(work_of(attempt))
    except DispatchError as error:
        log.warning("submit_failed", key=attempt.key, trace=attempt.trace, code=error.code, error=error.message)
        if error.permanent:
            lose_attempt(attempt, Because.NOT_DISPATCHED(error.message))
        elif attempt.state == AttemptState.SUBMITTING:
            # Shown on the pages, so that people see why nothing starts.
            attempt.note(Because.NOT_SUBMITTED(error.message))
        return
    if attempt.state == AttemptState.SUBMITTING:
        # The agent may have claimed it meanwhile; then this changes nothing.
        move_attempt(attempt, AttemptState.QUEUED, Because.SUBMITTED(f"accepted by the {port.name} dispatcher"))


def stop(attempt: Attempt, observed: Observed, port: Dispatcher) -> None:
    """One more step to the end of an attempt that is being stopped.

    What the dispatcher let go of may live on: until its lease is over, only its agent's own end or a proof of it ends
    the attempt, so that nothing else is given to its host beside it.
    """
    if observed is not Observed.ENDED:
        try:
            over = port.cancel(work_of(attempt))
        except DispatchError as error:
            log.warning("cancel_failed", key=attempt.key, trace=attempt.trace, code=error.code, error=error.message)
            return
        if not over or is_leased(attempt):
            return
    finish_canceled(attempt, attempt.said)


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
    cancel_attempt(attempt, Because.TOO_LATE(_with(reason, sighting)), losing=True)


def _adopt(attempt: Attempt, sighting: Sighting) -> None:
    """A worker died, or its controller's answer got lost, after the attempt was handed over."""
    found = _FOUND.get(sighting.observed)
    if found is not None:
        move_attempt(attempt, AttemptState.QUEUED, Because.SUBMITTED(found))
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
        cancel_attempt(attempt, Because.TOO_LATE("the agent lives but has been silent for too long"), losing=True)


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
            lose_attempt(attempt, Because.LOST(reason))


def _heard_of(attempt: Attempt) -> tuple[object, ...]:
    return attempt.state, attempt.lease_until, attempt.arrived_at


_Step = Callable[[], None]


class Pace:
    """What is left of a round's time. Every kind of step is done once, however late, so that none starves.

    After its look a round begins no stopping and handing over again after `seconds`, and as long as that nothing new to
    place: the next round goes on. None: it has all the time.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self._seconds = seconds
        self._ends_at: float | None = None
        self.left_over = 0

    def begin(self) -> None:
        """The time runs from here on."""
        self._ends_at = None if self._seconds is None else time.monotonic() + self._seconds

    def run(self, steps: list[_Step]) -> None:
        for number, step in enumerate(steps):
            if number and self._ends_at is not None and time.monotonic() > self._ends_at:
                self.left_over += len(steps) - number
                return
            step()


def run_round() -> bool:
    """One round; returns whether it left something for the next that could begin at once."""
    port = dispatcher()
    pace = Pace(port.steps_seconds)
    begin_round(port.name)
    try:
        if reconcile_attempts(pace):
            place_work(pace)
    finally:
        end_round(port.name)
    return pace.left_over > 0


def active_attempts() -> list[Attempt]:
    related = ("build", "builder", "machine", "session__machine", "session__series", "power_cycle__machine")
    return list(Attempt.objects.filter(state__in=Attempt.ACTIVE).select_related(*related).order_by("id"))


# --- reconciling -------------------------------------------------------------------


def reconcile_attempts(pace: Pace | None = None) -> bool:
    """Hold every active attempt against what the dispatcher sees; work of the dead goes back into the queue.

    Returns False, and changes nothing, when the dispatcher does not answer.
    """
    port = dispatcher()
    pace = pace or Pace()
    attempts = active_attempts()
    try:
        look = port.look([work_of(attempt) for attempt in attempts])
    except DispatchError as error:
        log.warning("look_failed", code=error.code, error=error.message)
        return False
    pace.begin()
    note_sightings(look.hosts)
    for attempt in attempts:
        reconcile(attempt, look.works[attempt.key])
    _stop_canceling(attempts, look, port, pace)
    _hold(port)
    _submit_again(attempts, look, port, pace)
    return True


def _stop_canceling(attempts: list[Attempt], look: Sightings, port: Dispatcher, pace: Pace) -> None:
    canceling = [attempt for attempt in attempts if attempt.state == AttemptState.CANCELING]

    def step(attempt: Attempt) -> _Step:
        return lambda: stop(attempt, look.works[attempt.key].observed, port)

    pace.run([step(attempt) for attempt in canceling])


def _hold(port: Dispatcher) -> None:
    # Read again: what ended in this round is not held any more, what arrived during it is.
    try:
        port.hold(hosts_to_hold(active_attempts()))
    except DispatchError as error:
        log.warning("hold_failed", code=error.code, error=error.message)


def _submit_again(attempts: list[Attempt], look: Sightings, port: Dispatcher, pace: Pace) -> None:
    """Hand over what was never seen outside. What is only not seen yet is waited for."""
    missing = [
        attempt
        for attempt in attempts
        if attempt.state == AttemptState.SUBMITTING and look.works[attempt.key].observed is Observed.ABSENT
    ]

    def step(attempt: Attempt) -> _Step:
        return lambda: submit(attempt, port)

    pace.run([step(attempt) for attempt in missing])


# --- placing ------------------------------------------------------------------------


def place_work(pace: Pace | None = None) -> list[Attempt]:
    """Give waiting work to the dispatcher as far as its hosts, and this round, go; returns what was placed."""
    port = dispatcher()
    pace = pace or Pace()
    placed: list[Attempt] = []

    def step(number: int) -> _Step:
        def place() -> None:
            attempt = open_attempt(placements[number], port.name)
            if attempt is not None:
                placed.append(attempt)
                submit(attempt, port)

        return place

    placements = next_placements(free_slots=None if port.slots is None else port.slots - _taken_slots())
    pace.begin()
    pace.run([step(number) for number in range(len(placements))])
    return placed


def _taken_slots() -> int:
    return int(Attempt.objects.filter(state__in=Attempt.ACTIVE).aggregate(total=Sum("slots"))["total"] or 0)

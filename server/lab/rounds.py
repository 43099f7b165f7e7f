"""The dispatcher's round: hold active attempts against what it sees, then place waiting work on it."""

import time
from collections.abc import Callable

import structlog
from django.conf import settings
from django.db.models import Sum

from server.lab.attempts import open_attempt, work_of
from server.lab.dispatch.base import Dispatcher, DispatchError, Look, Observed
from server.lab.dispatch.choosing import dispatcher
from server.lab.handing import stop, submit
from server.lab.holding import hosts_to_hold
from server.lab.hosts import note_sightings
from server.lab.models import Attempt, AttemptState
from server.lab.outages import begin_round, end_round
from server.lab.reconciling import reconcile
from server.lab.scheduling import next_placements

log = structlog.get_logger(__name__)

# After its look a round begins no stopping and handing over again after this time, and as long as that nothing new to
# place: the next round goes on. With the controller's limit of requests in a second, a round that only places is over
# within half a second; a look that takes long takes nothing from either.
_STEPS_SECONDS = 0.2

_Step = Callable[[], None]


class Pace:
    """What is left of a round's time. Every kind of step is done once, however late, so that none starves."""

    def __init__(self, *, bounded: bool) -> None:
        self._bounded = bounded
        self._ends_at: float | None = None
        self.left_over = 0

    def begin(self) -> None:
        """The time runs from here on."""
        self._ends_at = time.monotonic() + _STEPS_SECONDS if self._bounded else None

    def run(self, steps: list[_Step]) -> None:
        for number, step in enumerate(steps):
            if number and self._ends_at is not None and time.monotonic() > self._ends_at:
                self.left_over += len(steps) - number
                return
            step()


def run_round() -> bool:
    """One round; returns whether it left something for the next that could begin at once."""
    port = dispatcher()
    pace = Pace(bounded=not _is_here(port))
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


def _is_here(port: Dispatcher) -> bool:
    """Agents are processes of this host: there is no controller to be spared, and slots bound what runs."""
    return port.name != "jenkins"


# --- reconciling -------------------------------------------------------------------


def reconcile_attempts(pace: Pace | None = None) -> bool:
    """Hold every active attempt against what the dispatcher sees; work of the dead goes back into the queue.

    Returns False, and changes nothing, when the dispatcher does not answer.
    """
    port = dispatcher()
    pace = pace or Pace(bounded=False)
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


def _stop_canceling(attempts: list[Attempt], look: Look, port: Dispatcher, pace: Pace) -> None:
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


def _submit_again(attempts: list[Attempt], look: Look, port: Dispatcher, pace: Pace) -> None:
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
    pace = pace or Pace(bounded=False)
    placed: list[Attempt] = []

    def step(number: int) -> _Step:
        def place() -> None:
            attempt = open_attempt(placements[number], port.name)
            if attempt is not None:
                placed.append(attempt)
                submit(attempt, port)

        return place

    placements = next_placements(free_slots=_free_slots() if _is_here(port) else None)
    pace.begin()
    pace.run([step(number) for number in range(len(placements))])
    return placed


def _free_slots() -> int:
    taken = Attempt.objects.filter(state__in=Attempt.ACTIVE).aggregate(total=Sum("slots"))["total"]
    return int(settings.LOCAL_SLOTS) - int(taken or 0)

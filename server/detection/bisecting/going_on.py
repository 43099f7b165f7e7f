"""A bisection goes on: what its steps have told decides what is asked next."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Max

from server.core import clock
from server.core.errors import DomainError
from server.detection.bisecting.checking import check_culprit, stop_short
from server.detection.bisecting.concluding import cancel_bisection
from server.detection.bisecting.ends import verify_ends
from server.detection.bisecting.locking import lock
from server.detection.bisecting.searching import search
from server.detection.models import Bisection, BisectionState, Finding
from server.sources.models import Series

_PHASES: Mapping[str, Callable[[Bisection], bool]] = {
    BisectionState.ENDS: verify_ends,
    BisectionState.SEARCHING: search,
    BisectionState.CHECKING: check_culprit,
}

# Until a bisection ends nobody is told of its finding: a machine that is away must not keep it for weeks.
_PATIENCE = timedelta(days=3)


def go_on(bisection_id: int) -> None:
    """Ask the next step, or end. Nothing while a step is being measured; harmless at once from several processes.

    Ends with a step asked, or with the bisection. DomainError, temporary, where git or the host fails: then what was
    known before that is kept, so that the time that a phase may take is counted from its beginning.
    """
    while _takes_step(bisection_id):
        pass


def _takes_step(bisection_id: int) -> bool:
    """One step, in a transaction of its own; whether there is more to do now."""
    with transaction.atomic():
        bisection = lock(bisection_id)
        if bisection.state not in Bisection.FINAL and (reason := _needless(bisection.finding)):
            cancel_bisection(bisection, reason)
        if bisection.state not in Bisection.FINAL and (stuck := _stuck(bisection)):
            stop_short(bisection, stuck)
        if bisection.state in Bisection.FINAL or bisection.current_steps().filter(answer="").exists():
            return False
        try:
            return _PHASES[bisection.state](bisection)
        except DomainError as error:
            if error.code != "budget-spent":
                raise
            stop_short(bisection, error.message)
            return False


def stuck_before() -> datetime:
    """A step that was asked before is not waited for any longer."""
    return clock.now() - _PATIENCE


def _stuck(bisection: Bisection) -> str:
    step = bisection.current_steps().filter(answer="", created_at__lt=stuck_before()).select_related("trial").first()
    if step is None:
        return _cannot_go_on(bisection)
    why = f": {step.trial.reason}" if step.trial and step.trial.reason else ""
    return f"{bisection.machine.name} did not measure a step in {_PATIENCE.days} days{why}"


def _cannot_go_on(bisection: Bisection) -> str:
    """What is not waited for a machine goes on with the next sweep, if git can: commits may be gone for ever."""
    times = bisection.current_steps().aggregate(asked=Max("created_at"), told=Max("trial__answered_at"))
    latest = max([bisection.state_since, *(at for at in times.values() if at)])
    if latest >= stuck_before() or bisection.current_steps().filter(answer="").exists():
        return ""
    return f"its revisions could not be read for {_PATIENCE.days} days"


def _needless(finding: Finding) -> str:
    """Why nobody wants to know any more; empty while somebody does."""
    if finding.state != Finding.State.BISECTING:
        return f"its finding is {finding.state}"
    if finding.series is not None and finding.series.state == Series.State.SUPERSEDED:
        return "a newer version of the series arrived"
    return ""

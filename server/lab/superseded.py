"""Work that nobody wants any more is really stopped: what waits, and what runs."""

from django.db.models import Q

from server.builds.models import BuildState
from server.builds.services import cancel_unwanted
from server.lab.attempts import UNCLAIMED, cancel_attempt, end_session
from server.lab.health import awaited_kernels
from server.lab.models import Attempt, AttemptState, PowerCycleState, Session, SessionState
from server.sources.models import SeriesState

_CANCELED = (
    Q(build__state=BuildState.CANCELED)
    | Q(session__state=SessionState.CANCELED)
    | Q(power_cycle__state=PowerCycleState.CANCELED)
)
# Work that has its result already, out of the spool of an earlier attempt.
_OVER = Q(build__state__in=[BuildState.BUILT, BuildState.FAILED, BuildState.EXPIRED]) | Q(
    session__state__in=[SessionState.DONE, SessionState.FAILED]
)


def cancel_superseded() -> int:
    """Cancel what waits or runs for series that a newer version replaced; returns how many builds and sessions.

    What is with an agent is stopped by the rounds; its session ends when that is done. Builds that others want as well
    stay.
    """
    reason = "a newer version of the series arrived"
    sessions = Session.objects.filter(
        state__in=[SessionState.PLANNED, SessionState.DISPATCHED, SessionState.RUNNING],
        series__state=SeriesState.SUPERSEDED,
    )
    ended = sum(_cancel_session(session, reason) for session in sessions)
    ended += cancel_unwanted(reason, keep=awaited_kernels())
    stop_needless()
    return ended


def _cancel_session(session: Session, reason: str) -> bool:
    attempt = session.attempts.filter(state__in=Attempt.ACTIVE).first()
    if attempt is not None:
        return cancel_attempt(attempt, reason)
    return end_session(session, SessionState.CANCELED, reason)


def stop_needless() -> None:
    """Have attempts stopped whose work was canceled, or got its result before an agent came for it."""
    running = Attempt.objects.filter(state=AttemptState.RUNNING).filter(_CANCELED)
    unclaimed = Attempt.objects.filter(state__in=UNCLAIMED).filter(_CANCELED | _OVER)
    for attempt in (running | unclaimed).select_related("build", "session", "power_cycle"):
        work = attempt.build or attempt.session or attempt.power_cycle
        assert work is not None
        cancel_attempt(attempt, work.reason or f"its work is {work.state}")

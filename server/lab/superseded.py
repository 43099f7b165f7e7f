"""Work that nobody wants any more is really stopped: what waits, and what runs."""

from django.db.models import Q

from server.builds.models import BuildState
from server.builds.services import cancel_unwanted
from server.lab.attempts import UNCLAIMED, cancel_attempt
from server.lab.canceling import cancel_session
from server.lab.health import awaited_kernels
from server.lab.models import Attempt, AttemptState, PowerCycleState, Session, SessionState, Trial, TrialState
from server.lab.trials.ending import cancel_trial
from server.lab.trials.wanted_kernels import awaited_by_trials, trees_of_canceled
from server.sources.models import SeriesState

_CANCELED = (
    Q(build__state=BuildState.CANCELED)
    | Q(session__state=SessionState.CANCELED)
    | Q(power_cycle__state=PowerCycleState.CANCELED)
)
_REASON = "a newer version of the series arrived"
# Work that has its result already, out of the spool of an earlier attempt.
_OVER = Q(build__state__in=[BuildState.BUILT, BuildState.FAILED, BuildState.EXPIRED]) | Q(
    session__state__in=[SessionState.DONE, SessionState.FAILED]
)


def cancel_superseded() -> int:
    """Cancel what waits or runs for series that a newer version replaced, or for trials that were canceled.

    Returns how many builds and sessions. What is with an agent is stopped by the rounds; its session ends when that is
    done. Builds that others want as well stay.
    """
    ended = _cancel_sessions()
    superseded = Trial.objects.filter(series__state=SeriesState.SUPERSEDED)
    for trial in superseded.filter(state__in=[TrialState.WANTED, TrialState.MEASURING]):
        cancel_trial(trial, _REASON)
    keep = {*awaited_kernels(), *awaited_by_trials()}
    ended += cancel_unwanted(_REASON, keep=keep)
    ended += cancel_unwanted("the trial that wanted it was canceled", keep=keep, trees=trees_of_canceled())
    stop_needless()
    return ended


def _cancel_sessions() -> int:
    """Also those of canceled trials whose agent was lost while it was to be stopped: they were planned again."""
    sessions = Session.objects.filter(
        Q(series__state=SeriesState.SUPERSEDED)
        | Q(trial__series__state=SeriesState.SUPERSEDED)
        | Q(trial__state=TrialState.CANCELED),
        state__in=[SessionState.PLANNED, SessionState.DISPATCHED, SessionState.RUNNING],
    )
    return sum(cancel_session(session, _why(session)) for session in sessions.select_related("trial"))


def _why(session: Session) -> str:
    trial = session.trial
    return trial.reason if trial is not None and trial.state == TrialState.CANCELED else _REASON


def stop_needless() -> None:
    """Have attempts stopped whose work was canceled, or got its result before an agent came for it."""
    running = Attempt.objects.filter(state=AttemptState.RUNNING).filter(_CANCELED)
    unclaimed = Attempt.objects.filter(state__in=UNCLAIMED).filter(_CANCELED | _OVER)
    for attempt in (running | unclaimed).select_related("build", "session", "power_cycle"):
        work = attempt.build or attempt.session or attempt.power_cycle
        assert work is not None
        cancel_attempt(attempt, work.reason or f"its work is {work.state}")

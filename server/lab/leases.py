"""Heartbeats: an agent keeps its attempt as long as it is heard of, and hears whether to go on."""

from datetime import timedelta
from typing import Any

from django.db.models import Q, Value
from django.db.models.functions import Concat, Right

from server.builds.models import Build, BuildState
from server.core.errors import DomainError
from server.lab.claiming import lease_end
from server.lab.models import Attempt, AttemptState, PowerCycle, PowerCycleState, Session, SessionState, TrialState
from server.sources.models import SeriesState

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
    session = attempt.session
    if session is None:
        return Build.objects.filter(pk=attempt.build_id or 0, state=BuildState.RUNNING).exists()
    session.refresh_from_db(fields=["state"])
    unwanted = Q(series__state=SeriesState.SUPERSEDED) | Q(trial__series__state=SeriesState.SUPERSEDED)
    unwanted |= Q(trial__state=TrialState.CANCELED)
    if Session.objects.filter(unwanted, pk=session.pk).exists():
        return False
    return session.state == SessionState.RUNNING and not _is_stopping(attempt)


def _is_stopping(attempt: Attempt) -> bool:
    return Attempt.objects.filter(pk=attempt.pk, state=AttemptState.CANCELING).exists()

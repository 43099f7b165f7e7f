"""Ends of trials: with a result, without one, or because nobody asks any more."""

import structlog
from django.db import transaction

from server.core.tasks import enqueue
from server.lab.canceling import cancel_session
from server.lab.models import Session, SessionState, Trial, TrialState
from server.lab.trials.extending import conclude

log = structlog.get_logger(__name__)


def finish_trial(trial: Trial, state: str, reason: str, *, actor: str = "") -> bool:
    """End a trial and wake up who asked; False if another process ended it first."""
    with transaction.atomic():
        if trial.state in Trial.FINAL or not trial.advance(state, reason, actor=actor):
            return False
        enqueue("detection.answer", trial.pk)
    return True


def cancel_trial(trial: Trial, reason: str, actor: str = "") -> bool:
    """Nobody asks any more: what waits is canceled, what runs is stopped. False, and nothing happens, if it is over.

    What is measured already stays.
    """
    with transaction.atomic():
        # Held still, so that no session is planned or extended beside it.
        trial.refresh_from_db(from_queryset=Trial.objects.select_for_update(of=("self",), no_key=True))
        if not finish_trial(trial, TrialState.CANCELED, reason, actor=actor):
            return False
        _end_sessions(trial, reason)
    return True


def give_up_trial(*, trial_id: int, reason: str) -> bool:
    """Nobody can judge it: it fails with what is measured, and no more is. False if it is over."""
    with transaction.atomic():
        trial = Trial.objects.select_for_update(of=("self",), no_key=True).filter(pk=trial_id).first()
        if trial is None or not finish_trial(trial, TrialState.FAILED, reason):
            return False
        _end_sessions(trial, reason)
    log.error("trial_given_up", trace=trial.trace, trial=trial.pk, reason=reason)
    return True


def _end_sessions(trial: Trial, reason: str) -> None:
    for session in trial.sessions.filter(state__in=Session.OPEN):
        cancel_session(session, reason)
    for session in trial.sessions.filter(state=SessionState.DONE, concluded_at=None):
        conclude(session, cut_short=True)

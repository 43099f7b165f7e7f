"""Ends of trials: with a result, without one, or because nobody asks any more."""

from django.db import transaction

from server.core.tasks import enqueue
from server.lab.canceling import cancel_session
from server.lab.models import Session, SessionState, Trial, TrialState
from server.lab.trials.extending import conclude


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
        for session in trial.sessions.filter(state__in=Session.OPEN):
            cancel_session(session, reason)
        for session in trial.sessions.filter(state=SessionState.DONE, concluded_at=None):
            conclude(session, cut_short=True)
    return True

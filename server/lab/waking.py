"""Who is told that a session ended."""

from server.core.tasks import enqueue
from server.lab.models import Session


def wake_judge(session: Session) -> None:
    """Have a session that ended looked at: with its trial, or, one of before there were trials, with its series."""
    if session.trial_id is not None:
        enqueue("detection.look", session.trial_id)
    elif session.series_id is not None:
        enqueue("detection.judge", session.series_id)

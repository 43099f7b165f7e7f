"""Sessions that nobody wants any more: those that wait, and those that agents have."""

from server.lab.attempts import cancel_attempt, end_session
from server.lab.models import Attempt, Session, SessionState


def cancel_session(session: Session, reason: str) -> bool:
    """Cancel a session that is not over; what is with an agent is stopped by the rounds, and ends after that."""
    attempt = session.attempts.filter(state__in=Attempt.ACTIVE).first()
    if attempt is not None and session.state != SessionState.PLANNED:
        return cancel_attempt(attempt, reason)
    return end_session(session, SessionState.CANCELED, reason)

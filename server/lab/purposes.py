"""What a session is for, in words."""

from server.lab.models import Session, Trial


def purpose_of(session: Session) -> str:
    """The question that the session answers; for one of a series its subject.

    Reads the session's series, trial and machine.
    """
    if session.series is not None:
        return session.series.subject
    if session.trial is not None:
        return f"trial: {Trial.Purpose(session.trial.purpose).label}"
    return f"whether {session.machine.name} is well"

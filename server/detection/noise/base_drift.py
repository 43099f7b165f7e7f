"""Whether a machine measures a known kernel otherwise than it did: its own level moved, not the code."""

from server.detection.models import MachineQuestion
from server.detection.noise.levels import Moved, moved_cells
from server.detection.noise.questions import open_question
from server.detection.vector import shorten
from server.lab.models import Machine, Session, Trial

# Fewer cells say little about a machine: one benchmark may have its own trouble.
FEWEST_CELLS = 3
# A machine's level has moved when most of its cells have.
_MOST = 0.5


def base_drift(trial: Trial) -> list[tuple[Machine, str]]:
    """Machines of the trial whose base kernel measures otherwise than the last time, each with a sentence.

    The same code (by build or kernel hash) on the same machine, in the newest session before; each machine with such a
    drift has its question. Harmless to repeat.
    """
    found = []
    sessions = trial.sessions.filter(state=Session.State.DONE).select_related("machine", "base_build")
    for session in sessions.order_by("machine__name"):
        moved = moved_cells(session)
        if moved is None or moved.judged < FEWEST_CELLS or len(moved.names) <= _MOST * moved.judged:
            continue
        text = _sentence(session, moved)
        key = f"base:{session.pk}"
        open_question(key, MachineQuestion.Kind.BASE, session.machine, text, trace=trial.trace)
        found.append((session.machine, text))
    return found


def _sentence(session: Session, moved: Moved) -> str:
    return (
        f"the base kernel measures otherwise in session {session.pk} than in session {moved.before.pk}: "
        f"{len(moved.names)} of {moved.judged} cells moved, most {shorten(moved.names)}"
    )

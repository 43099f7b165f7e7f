"""What was wanted and has no result, with the reason."""

from collections import Counter
from collections.abc import Sequence

from server.detection.models import Comparison
from server.detection.notes import case_notes
from server.detection.scope import Scope, is_same_code
from server.detection.vector import Gap
from server.lab.models import Session

# Of one session; a machine that lacks much has some reasons for hundreds of cases.
_MOST_REASONS = 20


def gaps_of(scope: Scope, comparisons: Sequence[Comparison]) -> list[Gap]:
    """Sessions that ended without a result or early, and cases that gave no value in any boot of the others."""
    gaps = [
        _gap(session, reason=session.reason or Session.State(session.state).label)
        for session in scope.sessions
        if session.state != Session.State.DONE
    ]
    done = {session.pk: session for session in scope.done if not is_same_code(session)}
    judged = {(row.session_id, row.case.benchmark.name, row.case.name) for row in comparisons}
    notes = case_notes(list(done.values()))
    missing = [note for note in notes if (note.session_id, note.benchmark, note.case) not in judged]
    # A machine without some node or program skips hundreds of cases for one reason, which must not hide all others.
    alike: dict[tuple[int, str], list[str]] = {}
    for note in missing:
        alike.setdefault((note.session_id, note.text), []).append(note.case)
    told: Counter[int] = Counter()
    for (session_id, text), cases in alike.items():
        told[session_id] += 1
        if told[session_id] <= _MOST_REASONS:
            more = f" and {len(cases) - 1} more" if len(cases) > 1 else ""
            gaps.append(_gap(done[session_id], reason=f"{cases[0]}{more}: {text}"))
    for session_id, reasons in told.items():
        if reasons > _MOST_REASONS:
            gaps.append(_gap(done[session_id], reason=f"other cases: {reasons - _MOST_REASONS} more reasons"))
    silent = set(done) - {row.session_id for row in comparisons} - {note.session_id for note in missing}
    return gaps + [_gap(done[session_id], reason="no boot gave a value") for session_id in sorted(silent)]


def _gap(session: Session, *, reason: str) -> Gap:
    machine = session.machine
    return Gap(machine=machine.name, uarch=machine.uarch.name, reason=reason)

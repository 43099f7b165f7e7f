"""What agents wrote down about cases that gave no values."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from server.lab.models import Boot, Session

# Agents write these texts; a finding keeps them, and pages, mails and answers show them.
_LONGEST_TEXT, _MOST_TEXTS = 300, 4


@dataclass(frozen=True)
class CaseNote:
    """Why one case gave nothing in some boots of a session."""

    session_id: int
    benchmark: str
    case: str
    text: str


def case_notes(sessions: Sequence[Session]) -> list[CaseNote]:
    """One note for each session and case that gave nothing in some boot, from what the agent wrote down."""
    texts: dict[tuple[int, str, str], dict[str, None]] = defaultdict(dict)
    boots = Boot.objects.filter(session__in=sessions).exclude(notes=[])
    for session_id, arm, notes in boots.order_by("session_id", "position").values_list("session_id", "arm", "notes"):
        for note in notes:
            key = (session_id, str(note.get("benchmark", "")), str(note.get("case", "")))
            text = str(note.get("reason") or note.get("outcome") or "gave no values")
            texts[key][f"{arm} kernel: {text[:_LONGEST_TEXT]}"] = None
    return [CaseNote(*key, text=_joined(list(found))) for key, found in texts.items()]


def _joined(texts: Sequence[str]) -> str:
    more = [f"{len(texts) - _MOST_TEXTS} more reasons"] if len(texts) > _MOST_TEXTS else []
    return "; ".join([*texts[:_MOST_TEXTS], *more])

"""State changes as lines of a page."""

from collections.abc import Sequence
from dataclasses import dataclass

from server.reports.history import Step

# These change often and say little one by one: a page may fold them.
_MINOR = frozenset({"boot", "attempt"})
# A page draws the last of them.
_MOST = 2000
_LONGEST_REASON = 300


@dataclass(frozen=True, slots=True)
class Line:
    step: Step
    reason: str
    minor: bool
    session_id: int | None


@dataclass(frozen=True, slots=True)
class History:
    """`unshown` counts the steps before those in `lines`."""

    lines: tuple[Line, ...]
    minor: int
    unshown: int


def history(steps: Sequence[Step], *, fold: bool) -> History:
    """With `fold` the lines of boots and attempts are minor ones."""
    lines = tuple(
        Line(
            step=step,
            reason=step.reason[:_LONGEST_REASON],
            minor=fold and step.subject in _MINOR,
            session_id=step.subject_id if step.subject == "session" else None,
        )
        for step in steps[-_MOST:]
    )
    return History(lines, minor=sum(line.minor for line in lines), unshown=len(steps) - len(lines))

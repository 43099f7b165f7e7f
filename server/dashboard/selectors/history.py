"""State changes as lines of a page."""

from collections.abc import Iterable
from dataclasses import dataclass

from server.reports.history import Step

# These change often and say little one by one: a page may fold them.
_MINOR = frozenset({"boot", "attempt"})


@dataclass(frozen=True, slots=True)
class Line:
    step: Step
    minor: bool
    session_id: int | None


@dataclass(frozen=True, slots=True)
class History:
    lines: tuple[Line, ...]
    minor: int


def history(steps: Iterable[Step], *, fold: bool) -> History:
    """With `fold` the lines of boots and attempts are minor ones."""
    lines = tuple(
        Line(
            step=step,
            minor=fold and step.subject in _MINOR,
            session_id=step.subject_id if step.subject == "session" else None,
        )
        for step in steps
    )
    return History(lines, minor=sum(line.minor for line in lines))

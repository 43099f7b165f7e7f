"""Ends of a bisection, in the words of its machine; what all of a finding say together is told in settling.py."""

from server.core.errors import DomainError
from server.detection.bisecting.revisions import described, name_of
from server.detection.bisecting.settling import settle
from server.detection.bisecting.words import made_by
from server.detection.models import Bisection, BisectionState, BisectionStep

_MOST_NAMES = 6


def found(bisection: Bisection) -> None:
    """The culprit shows the change against its parent, and it is known what is left without it."""
    if bisection.advance(BisectionState.FOUND, made_by([bisection])):
        settle(bisection.finding_id)


def tell_range(bisection: Bisection, why: str) -> None:
    """FOUND, without a culprit: one of several."""
    inside = range(bisection.low + 1, bisection.high + 1)
    names = [name_of(bisection, index) for index in inside]
    shown = [*names[: _MOST_NAMES - 1], "...", names[-1]] if len(names) > _MOST_NAMES else names
    if bisection.advance(BisectionState.FOUND, f"one of {len(names)} revisions ({', '.join(shown)}): {why}"):
        settle(bisection.finding_id)


def give_up(bisection: Bisection, reason: str) -> None:
    """GAVE_UP, with what is known all the same: where it lies, as far as the search came."""
    count = bisection.high - bisection.low
    known = ""
    if count == 1 and not bisection.current_steps().filter(kind=BisectionStep.Kind.CULPRIT).exclude(answer="").exists():
        known = f"; the first with the change is {described(bisection, bisection.high)}"
    elif 1 < count < len(bisection.revisions) - 1:
        known = f"; it is one of the {count} from {described(bisection, bisection.low + 1)} to "
        known += name_of(bisection, bisection.high)
    if bisection.advance(BisectionState.GAVE_UP, f"{reason}{known}", culprit=None):
        _close_steps(bisection, reason)
        settle(bisection.finding_id)


def cancel_bisection(bisection: Bisection, reason: str, *, actor: str = "") -> None:
    """Nobody asks any more; the sweep cancels its trials. DomainError `bisection-over` when it has ended."""
    if bisection.state in Bisection.FINAL or not bisection.advance(
        BisectionState.CANCELED, reason, actor=actor, culprit=None
    ):
        raise DomainError("bisection-over", f"{bisection} has ended: {bisection.reason}")
    _close_steps(bisection, reason)
    settle(bisection.finding_id)


def _close_steps(bisection: Bisection, reason: str) -> None:
    bisection.current_steps().filter(answer="").update(answer=BisectionStep.Answer.UNSURE, reason=reason)

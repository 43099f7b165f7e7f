"""What the steps of a bisection have told so far."""

from collections import Counter
from dataclasses import dataclass

from server.detection.models import Bisection, BisectionStep

Kind = BisectionStep.Kind
Answer = BisectionStep.Answer
# Asked once more with fresh boots; what stays unsure then is left out.
TRIES = 2


@dataclass(frozen=True)
class Knowledge:
    """`low` is the last good revision, `high` the first bad one; `left_out` cannot be told; `again` was unsure once."""

    low: int
    high: int
    good: frozenset[int]
    bad: frozenset[int]
    left_out: frozenset[int]
    again: frozenset[int]

    @property
    def candidates(self) -> list[int]:
        """Revisions between that may still be measured."""
        return [index for index in range(self.low + 1, self.high) if index not in self.left_out]


def knowledge_of(bisection: Bisection) -> Knowledge:
    told = list(bisection.current_steps().filter(kind=Kind.MIDDLE).exclude(answer=""))
    last = len(bisection.revisions) - 1
    good = frozenset({0} | {step.index for step in told if step.answer == Answer.GOOD and step.index is not None})
    bad = frozenset({last} | {step.index for step in told if step.answer == Answer.BAD and step.index is not None})
    tries = Counter(step.index for step in told if step.answer == Answer.UNSURE and step.index is not None)
    skipped = {step.index for step in told if step.answer == Answer.SKIPPED and step.index is not None}
    high = min(bad)
    return Knowledge(
        low=max(index for index in good if index < high),
        high=high,
        good=good,
        bad=bad,
        left_out=frozenset(skipped | {index for index, count in tries.items() if count >= TRIES}),
        again=frozenset(index for index, count in tries.items() if count < TRIES),
    )


def was_not_measured(bisection: Bisection, kind: str, index: int | None) -> str:
    """Why, where the lab itself failed at every try of this step; empty otherwise."""
    tries = list(bisection.current_steps().filter(kind=kind, index=index, answer=Answer.UNSURE))
    if len(tries) < TRIES or any(step.ratio is not None for step in tries):
        return ""
    return tries[-1].reason


def not_seen_again(bisection: Bisection) -> bool:
    """Whether fresh boots of both ends showed nothing: then it was noise."""
    last = bisection.current_steps().filter(kind=Kind.ENDS).order_by("number").last()
    return last is not None and last.answer == Answer.GOOD

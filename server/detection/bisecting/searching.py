"""The search between verified ends: what is known first, then the middle."""

from server.detection.bisecting.choosing import choose
from server.detection.bisecting.concluding import give_up, tell_range
from server.detection.bisecting.kernels import Kernels, kernels_of
from server.detection.bisecting.knowledge import Answer, Kind, Knowledge, knowledge_of, was_not_measured
from server.detection.bisecting.revisions import name_of, revision_at
from server.detection.bisecting.same_code import known_by_code
from server.detection.bisecting.steps import ask_step, half_effect, known_step
from server.detection.models import Bisection, BisectionState, BisectionStep

# Kernels that do not build cost no machine time, which the budget counts; hundreds in a row would go on for weeks.
_MOST_LEFT_OUT = 32


def search(bisection: Bisection) -> bool:
    """One step towards CHECKING; whether there is more to do now."""
    known = knowledge_of(bisection)
    if (known.low, known.high) != (bisection.low, bisection.high):
        bisection.low, bisection.high = known.low, known.high
        Bisection.objects.filter(pk=bisection.pk).update(low=known.low, high=known.high)
    if known.high - known.low == 1:
        culprit = revision_at(bisection, known.high)
        told = f"{name_of(bisection, known.high)} is the first with the change"
        return bisection.advance(BisectionState.CHECKING, told, culprit=culprit)
    kernels = kernels_of(bisection)
    index = choose(known.low, known.high, known.candidates, made=kernels.made)
    if index is None:
        tell_range(bisection, "the revisions between cannot be told")
        return False
    if len(known.left_out) >= _MOST_LEFT_OUT:
        tell_range(bisection, f"{len(known.left_out)} revisions were tried between that cannot be told")
        return False
    if step := _answered_without_measuring(bisection, known, kernels, index):
        known_step(bisection, Kind.MIDDLE, index=step.index, like=step)
        return True
    return _measure(bisection, known, index)


def _measure(bisection: Bisection, known: Knowledge, index: int) -> bool:
    inside = range(known.low + 1, known.high)
    left_out = sorted(known.left_out.intersection(inside))
    if reason := next((why for left in left_out if (why := was_not_measured(bisection, Kind.MIDDLE, left))), ""):
        give_up(bisection, f"{bisection.machine.name} could not measure: {reason}")
        return False
    asked = min(known.again.intersection(inside), default=index)
    base, patched = revision_at(bisection, 0), revision_at(bisection, asked)
    ask_step(bisection, Kind.MIDDLE, base=base, patched=patched, index=asked, min_effect=half_effect(bisection))
    return False


def _answered_without_measuring(
    bisection: Bisection, known: Knowledge, kernels: Kernels, index: int
) -> BisectionStep | None:
    """The same code as a revision whose answer is known has the same answer; what is broken is skipped."""
    inside = range(known.low + 1, known.high)
    # The last good one and the first bad one tell the most.
    told = [step for between in inside if (step := known_by_code(bisection, known, kernels, between))]
    good = [step for step in told if step.answer == Answer.GOOD]
    if told:
        return good[-1] if good else told[0]
    if index in kernels.broken:
        return BisectionStep(index=index, answer=Answer.SKIPPED, reason=f"does not build: {kernels.broken[index]}")
    return None

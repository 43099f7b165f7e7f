"""What bisections found, in words."""

import math
from collections.abc import Sequence

from server.detection.bisecting.knowledge import Answer, Kind
from server.detection.bisecting.revisions import described
from server.detection.headline import as_ratio
from server.detection.models import Bisection, BisectionState, BisectionStep

# On logs: what one revision makes, or leaves, of the change is told where it is not nearly all, or nothing, of it.
_REST = 0.25


def made_by(bisections: Sequence[Bisection]) -> str:
    """Of bisections that checked the same culprit: made by patch 4 of 6: SUBJECT (1.71x time of fault-4k on zen3)."""
    first = bisections[0]
    ratios = ", ".join(_ratio(bisection) for bisection in bisections)
    remarks = list(dict.fromkeys(_of_revert(bisection) for bisection in bisections))
    if len(remarks) > 1:
        remarks = [f"{bisection.machine.uarch.name}: {_of_revert(bisection)}" for bisection in bisections]
    return f"made by {described(first, first.high)} ({ratios}); {'; '.join(remarks)}"


def together(bisections: Sequence[Bisection]) -> str:
    """What all bisections of a finding say."""
    if len(bisections) == 1:
        return bisections[0].reason
    found = [bisection for bisection in bisections if bisection.state == BisectionState.FOUND]
    agreed = found if found and found[0].culprit_id and len({row.culprit_id for row in found}) == 1 else []
    parts = [made_by(agreed)] if agreed else []
    parts += [f"{row.machine.uarch.name}: {row.reason}" for row in bisections if row not in agreed]
    return "; ".join(parts)


def _ratio(bisection: Bisection) -> str:
    step = bisection.current_steps().filter(kind=Kind.CULPRIT).order_by("number").last()
    ratio = step.ratio if step and step.ratio is not None else math.exp(bisection.effect)
    target = bisection.target
    part = "" if _share(bisection, ratio) >= 1 - _REST else f" of {as_ratio(math.exp(bisection.effect))}"
    return f"{as_ratio(ratio)}{part} {target.metric.name} of {target.case.name} on {bisection.machine.uarch.name}"


def _of_revert(bisection: Bisection) -> str:
    step = bisection.current_steps().filter(kind=Kind.REVERT).order_by("number").last()
    if step is not None and step.answer == Answer.GOOD:
        return _what_is_left(bisection, step)
    why = step.reason if step is not None else "nobody asked"
    if step is not None and step.answer == Answer.BAD:
        return f"but without it the change is still there: {why}"
    if step is not None and step.answer == Answer.SKIPPED:
        return f"the kernel without it was not measured: {why}"
    return f"whether the change is gone without it cannot be told: {why}"


def _what_is_left(bisection: Bisection, step: BisectionStep) -> str:
    """Less than half, which is all that was asked: others may have made the rest."""
    if step.ratio is None or _share(bisection, step.ratio) <= _REST:
        return "without it the change is gone"
    return f"without it {as_ratio(step.ratio)} of {as_ratio(math.exp(bisection.effect))} is left: others made the rest"


def _share(bisection: Bisection, ratio: float) -> float:
    """How much of the change a ratio is, on logs."""
    return math.log(ratio) / bisection.effect if ratio > 0 and bisection.effect else 1.0

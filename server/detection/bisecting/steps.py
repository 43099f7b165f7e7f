"""Steps of a bisection: asked for as a trial, or answered by what is known."""

import math

from django.conf import settings
from django.db.models import QuerySet

from server.core.errors import DomainError
from server.detection.models import Bisection, BisectionStep
from server.lab.models import Trial
from server.lab.trials.asking import USUAL_LOOKS, Ask, want_trial
from server.lab.trials.costs import spent
from server.sources.models import Revision

Kind = BisectionStep.Kind
_HOUR = 3600.0
# The statistics take fractions below 1: what more than doubled is told by this limit as well.
_LARGEST_EFFECT = 0.9


def ask_step(
    bisection: Bisection,
    kind: str,
    *,
    base: Revision,
    patched: Revision,
    index: int | None,
    min_effect: float | None,
) -> BisectionStep:
    """Have `patched` measured against `base` on the bisection's machine, in the case of its target alone.

    `min_effect` None: that of the cell. DomainError `budget-spent` when the bisection has no machine time left.
    """
    left = seconds_left(bisection)
    if left <= 0:
        raise DomainError("budget-spent", f"{settings.BISECT_HOURS:g} hours of machine time are spent")
    number = _next_number(bisection)
    case = bisection.target.case
    trial = want_trial(
        Ask(
            key=f"bisection:{bisection.pk}:{number}",
            purpose=Trial.Purpose.REVERT if kind == Kind.REVERT else Trial.Purpose.BISECT,
            base=base,
            patched=patched,
            looks=USUAL_LOOKS,
            trace=bisection.trace,
            series=bisection.finding.series,
            machines=(bisection.machine,),
            benchmarks=(f"{case.benchmark.name}/{case.name}",),
            min_effect=min_effect,
            budget_seconds=left,
        )
    )
    return BisectionStep.objects.create(
        bisection=bisection, number=number, round=bisection.round, kind=kind, index=index, trial=trial
    )


def known_step(bisection: Bisection, kind: str, *, index: int | None, like: BisectionStep) -> BisectionStep:
    """A step that needs no machine: its answer, ratio, reason and, where one told it, trial are those of `like`."""
    return BisectionStep.objects.create(
        bisection=bisection,
        number=_next_number(bisection),
        round=bisection.round,
        kind=kind,
        index=index,
        trial=like.trial,
        answer=like.answer,
        ratio=like.ratio,
        reason=like.reason,
    )


def half_effect(bisection: Bisection) -> float:
    """Half of the change between the ends, on logs, as a fraction: what lies below is good, what lies above is bad."""
    return min(math.expm1(abs(bisection.effect) / 2), _LARGEST_EFFECT)


def seconds_left(bisection: Bisection) -> float:
    """Machine time that the steps of this round may still take."""
    granted: float = settings.BISECT_HOURS * _HOUR
    return granted - spent(_made_for(bisection.current_steps())).seconds


def own_trials(bisection: Bisection, *, told: bool = False) -> list[int]:
    """Ids of the trials that were made for it, in all rounds; the finding's own, which may tell ends, is none.

    `told`: of those only that gave a ratio.
    """
    steps = bisection.steps.all()
    return _made_for(steps.filter(ratio__isnull=False) if told else steps)


def _made_for(steps: QuerySet[BisectionStep]) -> list[int]:
    asked = steps.filter(trial__purpose__in=[Trial.Purpose.BISECT, Trial.Purpose.REVERT])
    return sorted(set(asked.values_list("trial_id", flat=True)))


def _next_number(bisection: Bisection) -> int:
    last = bisection.steps.order_by("-number").first()
    return last.number + 1 if last else 1

"""Asking for a trial: one question, one row, however often it is asked."""

from dataclasses import dataclass
from itertools import pairwise

from django.db import transaction

from server.core.errors import DomainError
from server.core.tasks import enqueue
from server.lab.models import Machine, Trial, TrialState
from server.sources.models import Revision, Series
from server.stats.sequential import Design

# Looks of a question that is worth as many boots as it takes (docs/statistics.md).
USUAL_LOOKS = Design().looks
_LONGEST_KEY = 120


@dataclass(frozen=True)
class Ask:
    """A question. `looks` are boots a side; one alone is a fixed number, else the machine's own comes first.

    No `machines` are all that the tree of the base is interested in; no `benchmarks` are all. `min_effect` is a
    fraction, None: what each cell's noise says. `budget_seconds` is machine time, None: no limit. `priority` counts on
    top of the tree's.
    """

    key: str
    purpose: str
    base: Revision
    patched: Revision
    looks: tuple[int, ...]
    trace: str
    series: Series | None = None
    machines: tuple[Machine, ...] = ()
    benchmarks: tuple[str, ...] = ()
    layout: bool = False
    min_effect: float | None = None
    budget_seconds: float | None = None
    priority: int = 0


def want_trial(ask: Ask) -> Trial:
    """The trial of this question: the one there is, whatever became of it, or a new one that the sweep plans.

    Who wants a question asked again asks another one, by another key. Raises DomainError `bad-trial`.
    """
    _check(ask)
    with transaction.atomic():
        trial, created = Trial.objects.get_or_create(
            key=ask.key,
            defaults={
                "purpose": ask.purpose,
                "series": ask.series,
                "base": ask.base,
                "patched": ask.patched,
                "layout": ask.layout,
                "benchmarks": sorted(set(ask.benchmarks)),
                "looks": list(ask.looks),
                "budget_seconds": ask.budget_seconds,
                "min_effect": ask.min_effect,
                "priority": ask.priority,
                "state": TrialState.WANTED,
                "trace": ask.trace,
            },
        )
        if created:
            trial.record_creation()
            trial.machines.set(ask.machines)
            enqueue("builds.sweep")
    return trial


def _check(ask: Ask) -> None:
    if not 0 < len(ask.key) <= _LONGEST_KEY:
        raise DomainError("bad-trial", f"key {ask.key[:200]!r}: from 1 to {_LONGEST_KEY} characters")
    if ask.purpose not in Trial.Purpose.values:
        raise DomainError("bad-trial", f"{ask.key}: there is no purpose {ask.purpose!r}")
    try:
        Design(looks=ask.looks)
    except ValueError as error:
        raise DomainError("bad-trial", f"{ask.key}: {error}") from error
    if ask.budget_seconds is not None and not ask.budget_seconds > 0:
        raise DomainError("bad-trial", f"{ask.key}: a budget of {ask.budget_seconds} seconds")
    if ask.min_effect is not None and not 0 <= ask.min_effect < 1:
        raise DomainError("bad-trial", f"{ask.key}: a minimum effect of {ask.min_effect}, no fraction below 1")
    if any(before == after for before, after in pairwise(sorted(machine.pk for machine in ask.machines))):
        raise DomainError("bad-trial", f"{ask.key}: a machine is named twice")

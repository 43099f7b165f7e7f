"""What the trials of bisections and walks said."""

from django.db import transaction

from server.core.tasks import enqueue
from server.detection.bisecting.locking import lock
from server.detection.bisecting.reading import read_trial
from server.detection.models import BisectionStep
from server.lab.models import Trial


def answer(trial: Trial) -> None:
    """Write what it told into the steps that asked; the sweep of bisections, woken up here, goes on from there.

    A trial of purpose PATCH has no step: its walk is read from its comparisons (walking.py).
    """
    asked = BisectionStep.objects.filter(trial=trial, answer="").values_list("bisection_id", "pk")
    for bisection_id, step_id in sorted(asked):
        answer_step(bisection_id, step_id)


def answer_step(bisection_id: int, step_id: int) -> None:
    """Take up the answer of one step whose trial is over."""
    with transaction.atomic():
        bisection = lock(bisection_id)
        step = bisection.steps.select_related("trial__patched").filter(pk=step_id, answer="").first()
        if step is None or step.trial is None:
            return
        told = read_trial(bisection, step.trial)
        step.answer, step.ratio, step.reason = told.answer, told.ratio, told.reason
        step.save(update_fields=["answer", "ratio", "reason"])
        enqueue("detection.tend", "bisections")

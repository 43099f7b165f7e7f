"""Revisions that run the code of one that was told already: most commits change nothing of a lean kernel."""

from django.db import transaction

from server.detection.bisecting.kernels import Kernels, kernels_of
from server.detection.bisecting.knowledge import Answer, Knowledge, knowledge_of
from server.detection.bisecting.locking import lock
from server.detection.bisecting.revisions import name_of
from server.detection.models import Bisection, BisectionStep


def known_by_code(bisection: Bisection, known: Knowledge, kernels: Kernels, index: int) -> BisectionStep | None:
    """What is known of this revision without measuring it, as a step that is not saved."""
    good = next((other for other in sorted(known.good) if kernels.same(index, other)), None)
    bad = next((other for other in sorted(known.bad) if kernels.same(index, other)), None)
    # Kernels alike that were told apart: their code tells nothing.
    if (good is None) == (bad is None):
        return None
    answer, like = (Answer.BAD, bad) if good is None else (Answer.GOOD, good)
    assert like is not None
    return BisectionStep(index=index, answer=answer, reason=f"the same code as {name_of(bisection, like)}")


def answer_from_code(bisection_id: int, step_id: int) -> None:
    """Answer a step whose kernel is made by now, where its code is known; its trial is canceled by the sweep."""
    with transaction.atomic():
        bisection = lock(bisection_id)
        step = bisection.steps.filter(pk=step_id, answer="").first()
        if step is None or step.index is None:
            return
        told = known_by_code(bisection, knowledge_of(bisection), kernels_of(bisection), step.index)
        if told is not None:
            step.answer, step.reason = told.answer, told.reason
            step.save(update_fields=["answer", "reason"])

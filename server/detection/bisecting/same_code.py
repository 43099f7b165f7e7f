"""Revisions that run the code of one that was told already: most commits change nothing of a lean kernel."""

from django.db import transaction

from server.detection.bisecting.kernels import Kernels, builds_for, kernels_of, names_of, patched_by_others
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


def revert_by_code(bisection: Bisection, known: Knowledge, kernels: Kernels, tree_sha: str) -> BisectionStep | None:
    """What is known of the bad end without its culprit: it may be the source, or the kernel, of one that was told."""
    is_patched = tree_sha in patched_by_others(bisection, {tree_sha})
    names = names_of(builds_for(bisection, {tree_sha}).get(tree_sha), tree_sha, is_patched=is_patched)
    for answer, indices in ((Answer.GOOD, known.good), (Answer.BAD, known.bad)):
        for index in sorted(indices):
            if names & kernels.names.get(index, frozenset()):
                step = measured_at(bisection, index)
                like = "source" if tree_sha in kernels.names[index] else "code"
                reason = f"the same {like} as {name_of(bisection, index)}"
                return BisectionStep(answer=answer, reason=reason, ratio=step.ratio if step else None)
    return None


def measured_at(bisection: Bisection, index: int) -> BisectionStep | None:
    """The step that measured this revision against the good end."""
    told = bisection.current_steps().filter(
        kind__in=[BisectionStep.Kind.MIDDLE, BisectionStep.Kind.ENDS],
        index=index,
        ratio__isnull=False,
        answer__in=[Answer.GOOD, Answer.BAD],
    )
    return told.order_by("number").last()


def answer_from_code(bisection_id: int, step_id: int) -> None:
    """Answer a step whose kernel is made by now, where its code is known; its trial is canceled by the sweep."""
    with transaction.atomic():
        bisection = lock(bisection_id)
        step = bisection.current_steps().select_related("trial__patched").filter(pk=step_id, answer="").first()
        if step is None:
            return
        known, kernels = knowledge_of(bisection), kernels_of(bisection)
        if step.kind == BisectionStep.Kind.REVERT and step.trial is not None:
            told = revert_by_code(bisection, known, kernels, step.trial.patched.tree_sha)
        else:
            told = None if step.index is None else known_by_code(bisection, known, kernels, step.index)
        if told is not None:
            step.answer, step.ratio, step.reason = told.answer, told.ratio, told.reason
            step.save(update_fields=["answer", "ratio", "reason"])

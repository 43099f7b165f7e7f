"""The culprit alone must show the change, and taking it back must take the change back."""

from datetime import timedelta

import structlog

from server.core import clock
from server.core.errors import DomainError
from server.detection.bisecting.concluding import found, give_up
from server.detection.bisecting.kernels import Kernels, kernels_of
from server.detection.bisecting.knowledge import TRIES, Answer, Kind, knowledge_of
from server.detection.bisecting.revisions import name_of, revision_at
from server.detection.bisecting.steps import ask_step, half_effect, known_step
from server.detection.models import Bisection, BisectionStep
from server.sources.models import Revision
from server.sources.reverts import revert_commit

log = structlog.get_logger(__name__)

# How long git may fail to make the revert, for reasons of this host, until the culprit is told without it.
_PATIENCE = timedelta(hours=6)


def check_culprit(bisection: Bisection) -> bool:
    """One step towards FOUND; whether there is more to do now."""
    kernels = kernels_of(bisection)
    steps = list(bisection.steps.filter(kind=Kind.CULPRIT).order_by("number"))
    last = steps[-1] if steps else None
    if last is None or (_is_open(last) and len(steps) < TRIES):
        return _ask_about_culprit(bisection, kernels, first=last is None)
    if last.answer != Answer.BAD:
        name = name_of(bisection, bisection.high)
        give_up(bisection, f"{name} is where it appears, but against its parent it does not show it: {last.reason}")
        return False
    reverts = list(bisection.steps.filter(kind=Kind.REVERT).order_by("number"))
    if not reverts or (reverts[-1].answer == Answer.UNSURE and len(reverts) < TRIES):
        return _ask_about_revert(bisection, kernels)
    found(bisection)
    return False


def _is_open(step: BisectionStep) -> bool:
    return step.answer in {Answer.UNSURE, Answer.SKIPPED}


def _ask_about_culprit(bisection: Bisection, kernels: Kernels, *, first: bool) -> bool:
    parent, culprit = bisection.high - 1, bisection.high
    like = _measured(bisection, culprit) if parent == 0 or kernels.same(parent, 0) else None
    if first and like is not None:
        # Its parent runs the code of the good end, which it was measured against.
        known_step(bisection, Kind.CULPRIT, index=culprit, like=like)
        return True
    base, patched = revision_at(bisection, parent), revision_at(bisection, culprit)
    ask_step(bisection, Kind.CULPRIT, base=base, patched=patched, index=culprit, min_effect=half_effect(bisection))
    return False


def _ask_about_revert(bisection: Bisection, kernels: Kernels) -> bool:
    """Measured against the good end, as every step is: what the other revisions change is in it, too."""
    try:
        revert = revert_commit(head=revision_at(bisection, -1), culprit=revision_at(bisection, bisection.high))
    except DomainError as error:
        if clock.now() - bisection.state_since < _PATIENCE:
            raise
        log.warning("revert_not_made", trace=bisection.trace, bisection=bisection.pk, reason=error.message)
        known_step(bisection, Kind.REVERT, index=None, like=_skipped(f"not made: {error.message}"))
        return True
    if revert is None:
        known_step(bisection, Kind.REVERT, index=None, like=_skipped("cannot be taken back: later ones build on it"))
        return True
    if like := _of_same_tree(bisection, kernels, revert):
        known_step(bisection, Kind.REVERT, index=None, like=like)
        return True
    good = revision_at(bisection, 0)
    ask_step(bisection, Kind.REVERT, base=good, patched=revert, index=None, min_effect=half_effect(bisection))
    return False


def _skipped(reason: str) -> BisectionStep:
    return BisectionStep(answer=Answer.SKIPPED, reason=reason)


def _of_same_tree(bisection: Bisection, kernels: Kernels, revert: Revision) -> BisectionStep | None:
    """Without the last of them, what is left is the one before, whose answer is known."""
    known = knowledge_of(bisection)
    for answer, indices in ((Answer.GOOD, known.good), (Answer.BAD, known.bad)):
        for index in sorted(indices):
            if revert.tree_sha in kernels.names.get(index, frozenset()):
                step = _measured(bisection, index)
                reason = f"the same source as {name_of(bisection, index)}"
                return BisectionStep(answer=answer, reason=reason, ratio=step.ratio if step else None)
    return None


def _measured(bisection: Bisection, index: int) -> BisectionStep | None:
    """The step that measured this revision against the good end."""
    kinds = [Kind.MIDDLE, Kind.ENDS]
    told = bisection.steps.filter(
        kind__in=kinds, index=index, ratio__isnull=False, answer__in=[Answer.GOOD, Answer.BAD]
    )
    return told.order_by("number").last()

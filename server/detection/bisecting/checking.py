"""The culprit alone must show the change, and taking it back must take the change back."""

from datetime import timedelta

import structlog

from server.core import clock
from server.core.errors import DomainError
from server.detection.bisecting.concluding import found, give_up
from server.detection.bisecting.kernels import Kernels, kernels_of
from server.detection.bisecting.knowledge import TRIES, Answer, Kind, knowledge_of
from server.detection.bisecting.revisions import name_of, revision_at
from server.detection.bisecting.same_code import measured_at, revert_by_code
from server.detection.bisecting.steps import ask_step, half_effect, known_step
from server.detection.models import Bisection, BisectionStep
from server.sources.reverts import revert_commit

log = structlog.get_logger(__name__)

# How long git may fail to make the revert, for reasons of this host, until the culprit is told without it.
_PATIENCE = timedelta(hours=6)


def check_culprit(bisection: Bisection) -> bool:
    """One step towards FOUND; whether there is more to do now."""
    kernels = kernels_of(bisection)
    steps = list(bisection.current_steps().filter(kind=Kind.CULPRIT).order_by("number"))
    last = steps[-1] if steps else None
    if last is None or (_is_open(last) and len(steps) < TRIES):
        return _ask_about_culprit(bisection, kernels, first=last is None)
    if last.answer != Answer.BAD:
        give_up(bisection, _not_alone(bisection, last))
        return False
    reverts = list(bisection.current_steps().filter(kind=Kind.REVERT).order_by("number"))
    if not reverts or (reverts[-1].answer == Answer.UNSURE and len(reverts) < TRIES):
        return _ask_about_revert(bisection, kernels)
    found(bisection)
    return False


def _is_open(step: BisectionStep) -> bool:
    return step.answer in {Answer.UNSURE, Answer.SKIPPED}


def stop_short(bisection: Bisection, reason: str) -> None:
    """No more is measured: a culprit that was checked is told, without what is left when it is taken back."""
    if not bisection.current_steps().filter(kind=Kind.CULPRIT, answer=Answer.BAD).exists():
        give_up(bisection, reason)
        return
    left = bisection.current_steps().filter(kind=Kind.REVERT, answer="")
    if not left.update(answer=Answer.SKIPPED, reason=reason):
        known_step(bisection, Kind.REVERT, index=None, like=_skipped(reason))
    found(bisection)


def _not_alone(bisection: Bisection, last: BisectionStep) -> str:
    """Half of the change is crossed there, and it alone does not make half: it grew in steps, or an answer was luck."""
    name = name_of(bisection, bisection.high)
    alone = f"against its parent it does not make half of the change: {last.reason}"
    if last.answer != Answer.GOOD:
        alone = f"against its parent it cannot be told: {last.reason}"
    return f"{name} is where half of the change is crossed, but {alone}"


def _ask_about_culprit(bisection: Bisection, kernels: Kernels, *, first: bool) -> bool:
    parent, culprit = bisection.high - 1, bisection.high
    like = measured_at(bisection, culprit) if parent == 0 or kernels.same(parent, 0) else None
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
    if like := revert_by_code(bisection, knowledge_of(bisection), kernels, revert.tree_sha):
        known_step(bisection, Kind.REVERT, index=None, like=like)
        return True
    good = revision_at(bisection, 0)
    ask_step(bisection, Kind.REVERT, base=good, patched=revert, index=None, min_effect=half_effect(bisection))
    return False


def _skipped(reason: str) -> BisectionStep:
    return BisectionStep(answer=Answer.SKIPPED, reason=reason)

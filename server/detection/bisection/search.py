"""The search: both ends are verified, then the middle is measured, then the culprit alone must show the change and
its revert take it back.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta

import structlog
from django.db import transaction
from django.db.models import Max

from server.core import clock
from server.core.errors import DomainError
from server.core.reasons import Because
from server.detection.bisection.conclusion import cancel_bisection, found, give_up, tell_range
from server.detection.bisection.knowledge import (
    TRIES,
    Answer,
    Kind,
    Knowledge,
    KnownKernels,
    kernels_of,
    knowledge_of,
    known_by_code,
    lock,
    measured_at,
    name_of,
    revert_by_code,
    revision_at,
    was_not_measured,
)
from server.detection.bisection.step import ask_step, half_effect, known_step
from server.detection.findings.vector import as_speed
from server.detection.models import Bisection, BisectionState, BisectionStep, Comparison, Finding
from server.detection.models.finding import FIRST_ROUND
from server.lab.models import Trial
from server.sources.applying.git_am import revert_commit
from server.sources.models import Series

# A kernel that is made already saves its build, and a step of a search for several microarchitectures: worth a choice
# this share of the interval off the middle, which costs less than a tenth of a step on average.
_SLACK = 8


def choose(low: int, high: int, candidates: Sequence[int], *, made: Collection[int]) -> int | None:
    """The candidate nearest to the middle between `low` and `high`; one that is made where that is about as near.

    None where nothing is left. What cannot be measured is no candidate, so that the search goes on beside it.
    """
    middle = (low + high) / 2

    def distance(index: int) -> tuple[float, int]:
        return abs(index - middle), index

    nearest = min(candidates, key=distance, default=None)
    if nearest is None:
        return None
    enough = distance(nearest)[0] + (high - low) / _SLACK
    ready = [index for index in candidates if index in made and distance(index)[0] <= enough]
    return min(ready, key=distance, default=nearest)


# The cell was chosen because it moved most of many, so that its ratio flatters. Where its interval reaches no further
# than this share of the change to either side, luck cannot have made half of it.
_PRECISE = 0.2
# A machine is serviced and its firmware updated now and then.
_FRESH = timedelta(days=7)


def verify_ends(bisection: Bisection) -> bool:
    """One step towards SEARCHING; whether there is more to do now."""
    told = list(bisection.current_steps().filter(kind=Kind.ENDS).order_by("number"))
    if not told and (known := _known(bisection)):
        told = [known_step(bisection, Kind.ENDS, index=len(bisection.revisions) - 1, like=known)]
    last = told[-1] if told else None
    if last is None or (last.answer in {Answer.UNSURE, Answer.SKIPPED} and len(told) < TRIES):
        _ask(bisection)
        return False
    if last.answer == Answer.BAD and last.ratio is not None:
        effect = math.log(last.ratio)
        verified = Because.ENDS_VERIFIED(f"both ends are verified: {last.reason}")
        return bisection.advance(BisectionState.SEARCHING, verified, effect=effect)
    if last.answer == Answer.GOOD:
        give_up(bisection, f"measured again, its change does not show: {last.reason}")
    else:
        give_up(bisection, f"measured again, its ends cannot be told apart: {last.reason}")
    return False


def _ask(bisection: Bisection) -> None:
    last = len(bisection.revisions) - 1
    good, bad = revision_at(bisection, 0), revision_at(bisection, last)
    ask_step(bisection, Kind.ENDS, base=good, patched=bad, index=last, min_effect=None)


def _known(bisection: Bisection) -> BisectionStep | None:
    """The finding's own trial, where it is of these kernels, fresh and so precise that asking again tells nothing.

    Who searches once more starts anew: the ends are booted.
    """
    if bisection.round > FIRST_ROUND:
        return None
    row = bisection.target
    trial = row.session.trial
    ends = (bisection.revisions[0], bisection.revisions[-1])
    if trial is None or row.ratio is None or (trial.base.sha, trial.patched.sha) != ends or trial.layout:
        return None
    if trial.purpose not in {Trial.Purpose.SERIES, Trial.Purpose.CONFIRM}:
        return None
    if clock.now() - row.computed_at > _FRESH or not _is_precise(row):
        return None
    reason = f"at {as_speed(row.ratio, row.metric.better)} it has the change, in the finding's own boots"
    return BisectionStep(trial=trial, answer=Answer.BAD, ratio=row.ratio, reason=reason)


def _is_precise(row: Comparison) -> bool:
    if not (row.ratio and row.ratio_low and row.ratio_high):
        return False
    effect = math.log(row.ratio)
    reach = max(math.log(row.ratio_high) - effect, effect - math.log(row.ratio_low))
    return reach <= _PRECISE * abs(effect)


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
        told = Because.FOUND(f"{name_of(bisection, known.high)} is the first with the change")
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
    bisection: Bisection, known: Knowledge, kernels: KnownKernels, index: int
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


log = structlog.get_logger(__name__)

# How long git may fail to make the revert, for reasons of this host, until the culprit is told without it.
_PATIENCE_WITH_CHECK = timedelta(hours=6)


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


def _ask_about_culprit(bisection: Bisection, kernels: KnownKernels, *, first: bool) -> bool:
    parent, culprit = bisection.high - 1, bisection.high
    like = measured_at(bisection, culprit) if parent == 0 or kernels.same(parent, 0) else None
    if first and like is not None:
        # Its parent runs the code of the good end, which it was measured against.
        known_step(bisection, Kind.CULPRIT, index=culprit, like=like)
        return True
    base, patched = revision_at(bisection, parent), revision_at(bisection, culprit)
    ask_step(bisection, Kind.CULPRIT, base=base, patched=patched, index=culprit, min_effect=half_effect(bisection))
    return False


def _ask_about_revert(bisection: Bisection, kernels: KnownKernels) -> bool:
    """Measured against the good end, as every step is: what the other revisions change is in it, too."""
    try:
        revert = revert_commit(head=revision_at(bisection, -1), culprit=revision_at(bisection, bisection.high))
    except DomainError as error:
        if clock.now() - bisection.state_since < _PATIENCE_WITH_CHECK:
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


_PHASES: Mapping[str, Callable[[Bisection], bool]] = {
    BisectionState.ENDS: verify_ends,
    BisectionState.SEARCHING: search,
    BisectionState.CHECKING: check_culprit,
}

# Until a bisection ends nobody is told of its finding: a machine that is away must not keep it for weeks.
_PATIENCE = timedelta(days=3)


def go_on(bisection_id: int) -> None:
    """Ask the next step, or end. Nothing while a step is being measured; harmless at once from several processes.

    Ends with a step asked, or with the bisection. DomainError, temporary, where git or the host fails: then what was
    known before that is kept, so that the time that a phase may take is counted from its beginning.
    """
    while _takes_step(bisection_id):
        pass


def _takes_step(bisection_id: int) -> bool:
    """One step, in a transaction of its own; whether there is more to do now."""
    with transaction.atomic():
        bisection = lock(bisection_id)
        if bisection.state not in Bisection.FINAL and (reason := _needless(bisection.finding)):
            cancel_bisection(bisection, Because.NOT_WANTED(reason))
        if bisection.state not in Bisection.FINAL and (stuck := _stuck(bisection)):
            stop_short(bisection, stuck)
        if bisection.state in Bisection.FINAL or bisection.current_steps().filter(answer="").exists():
            return False
        try:
            return _PHASES[bisection.state](bisection)
        except DomainError as error:
            if error.code != "budget-spent":
                raise
            stop_short(bisection, error.message)
            return False


def stuck_before() -> datetime:
    """A step that was asked before is not waited for any longer."""
    return clock.now() - _PATIENCE


def _stuck(bisection: Bisection) -> str:
    step = bisection.current_steps().filter(answer="", created_at__lt=stuck_before()).select_related("trial").first()
    if step is None:
        return _cannot_go_on(bisection)
    why = f": {step.trial.reason}" if step.trial and step.trial.reason else ""
    return f"{bisection.machine.name} did not measure a step in {_PATIENCE.days} days{why}"


def _cannot_go_on(bisection: Bisection) -> str:
    """What is not waited for a machine goes on with the next sweep, if git can: commits may be gone for ever."""
    times = bisection.current_steps().aggregate(asked=Max("created_at"), told=Max("trial__answered_at"))
    latest = max([bisection.state_since, *(at for at in times.values() if at)])
    if latest >= stuck_before() or bisection.current_steps().filter(answer="").exists():
        return ""
    return f"its revisions could not be read for {_PATIENCE.days} days"


def _needless(finding: Finding) -> str:
    """Why nobody wants to know any more; empty while somebody does."""
    if finding.state != Finding.State.BISECTING:
        return f"its finding is {finding.state}"
    if finding.series is not None and finding.series.state == Series.State.SUPERSEDED:
        return "a newer version of the series arrived"
    return ""

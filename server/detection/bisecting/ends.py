"""Both ends are verified before anything is searched between them."""

import math
from datetime import timedelta

from server.core import clock
from server.detection.bisecting.concluding import give_up
from server.detection.bisecting.knowledge import TRIES, Answer, Kind
from server.detection.bisecting.revisions import revision_at
from server.detection.bisecting.steps import ask_step, known_step
from server.detection.models import Bisection, BisectionState, BisectionStep, Comparison
from server.detection.models.bisections import FIRST_ROUND
from server.lab.models import Trial

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
        return bisection.advance(BisectionState.SEARCHING, f"both ends are verified: {last.reason}", effect=effect)
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
    reason = f"at {row.ratio:.3f}x it has the change, in the finding's own boots"
    return BisectionStep(trial=trial, answer=Answer.BAD, ratio=row.ratio, reason=reason)


def _is_precise(row: Comparison) -> bool:
    if not (row.ratio and row.ratio_low and row.ratio_high):
        return False
    effect = math.log(row.ratio)
    reach = max(math.log(row.ratio_high) - effect, effect - math.log(row.ratio_low))
    return reach <= _PRECISE * abs(effect)

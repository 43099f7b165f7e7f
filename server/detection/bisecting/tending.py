"""The sweep over bisections and walks: what a lost message, a killed worker or a failing git left."""

from collections.abc import Callable

import structlog
from django.db.models import Exists, OuterRef, Q

from server.core.errors import DomainError
from server.detection.bisecting.answering import answer_step
from server.detection.bisecting.beginning import begin_forgotten
from server.detection.bisecting.going_on import go_on, stuck_before
from server.detection.bisecting.same_code import answer_from_code
from server.detection.bisecting.searching_again import search_on
from server.detection.bisecting.settling import settle
from server.detection.bisecting.walking import walk_what_changed
from server.detection.models import Bisection, BisectionState, BisectionStep, Finding
from server.lab.models import Trial, TrialState
from server.lab.trials.ending import cancel_trial
from server.sources.models import Series

log = structlog.get_logger(__name__)

_OPEN = (BisectionState.ENDS, BisectionState.SEARCHING, BisectionState.CHECKING)
# Of each kind at once; the next sweep goes on. A step asked takes milliseconds, a revert seconds.
_MOST = 50


def tend() -> None:
    """Take up answers, ask next steps, end what nobody asks for; harmless twice."""
    begin_forgotten(_MOST)
    search_on(_MOST)
    answered = BisectionStep.objects.filter(answer="", trial__answered_at__isnull=False)
    for bisection_id, step_id in answered.values_list("bisection_id", "pk")[:_MOST]:
        answer_step(bisection_id, step_id)
    kinds = [BisectionStep.Kind.MIDDLE, BisectionStep.Kind.REVERT]
    planned = BisectionStep.objects.filter(answer="", kind__in=kinds, trial__state=TrialState.MEASURING)
    for bisection_id, step_id in planned.values_list("bisection_id", "pk")[:_MOST]:
        answer_from_code(bisection_id, step_id)
    # Steps that are waited for; those that nobody waits for any longer end their bisection.
    asked = BisectionStep.objects.filter(bisection=OuterRef("pk"), answer="", created_at__gte=stuck_before())
    needless = ~Q(finding__state=Finding.State.BISECTING) | Q(finding__series__state=Series.State.SUPERSEDED)
    waiting = Bisection.objects.filter(~Exists(asked) | needless, state__in=_OPEN)
    for bisection_id in waiting.order_by("pk").values_list("pk", flat=True)[:_MOST]:
        _each(go_on, bisection_id)
    _cancel_trials()
    done = Finding.objects.filter(state=Finding.State.BISECTING).exclude(bisections__state__in=_OPEN)
    for finding_id in done.values_list("pk", flat=True)[:_MOST]:
        settle(finding_id)
    walk_what_changed()


def _each(step: Callable[[int], None], row_id: int) -> None:
    """One that cannot go on now keeps no other from it."""
    try:
        step(row_id)
    except DomainError as error:
        log.warning("bisection_waits", bisection=row_id, code=error.code, reason=error.message)


def _cancel_trials() -> None:
    """Not in the step that made them needless: who answers a trial holds it before the bisection."""
    asked = BisectionStep.objects.filter(trial=OuterRef("pk"), answer="")
    left = Trial.objects.filter(
        ~Exists(asked),
        state__in=[TrialState.WANTED, TrialState.MEASURING],
        purpose__in=[Trial.Purpose.BISECT, Trial.Purpose.REVERT],
    )
    for trial in left[:_MOST]:
        cancel_trial(trial, "what it was to tell is known, or nobody asks any more")

"""What the bisections of one finding say together, once all of them have ended."""

from collections.abc import Sequence

from django.db import transaction

from server.core.tasks import enqueue
from server.detection.bisecting.knowledge import Answer, Kind, not_seen_again
from server.detection.bisecting.words import together
from server.detection.lifecycle.checks import Check, Name, Outcome, set_checks
from server.detection.lifecycle.invalidating import Why, invalidate
from server.detection.models import Bisection, BisectionState, Finding
from server.sources.models import Revision


def settle(finding_id: int) -> None:
    """BISECTING -> CONFIRMED with the culprit, where all that found one agree; -> INVALID where fresh boots show none.

    Nothing while one of them is under way, or when the finding has left BISECTING.
    """
    with transaction.atomic():
        # Two that end at once: the second one waits here, and then sees both.
        finding = Finding.objects.select_for_update(of=("self",), no_key=True).get(pk=finding_id)
        if finding.state != Finding.State.BISECTING:
            return
        bisections = list(
            finding.bisections.select_related("machine__uarch", "culprit", "target__case", "target__metric").order_by(
                "machine__name"
            )
        )
        if any(bisection.state not in Bisection.FINAL for bisection in bisections):
            return
        set_checks(finding, [Name.BISECTION], [_check(bisection) for bisection in bisections])
        if bisections and all(not_seen_again(bisection) for bisection in bisections):
            invalidate(finding, actor="", why=Why.NOISE, reason=together(bisections))
            return
        finding.advance(Finding.State.CONFIRMED, together(bisections), culprit=_culprit(bisections))
        enqueue("reports.sweep")


def _culprit(bisections: Sequence[Bisection]) -> Revision | None:
    """The one that all agree on which found one; a range is no agreement."""
    told = [bisection for bisection in bisections if bisection.state == BisectionState.FOUND]
    found = {bisection.culprit_id for bisection in told}
    return told[0].culprit if len(found) == 1 else None


def _check(bisection: Bisection) -> Check:
    machine = bisection.machine
    return Check(Name.BISECTION, _outcome(bisection), bisection.reason, machine=machine.name, uarch=machine.uarch.name)


def _outcome(bisection: Bisection) -> Outcome:
    if not_seen_again(bisection):
        return Outcome.FAILED
    if bisection.state != BisectionState.FOUND or bisection.culprit_id is None:
        return Outcome.NOT_CHECKED
    revert = bisection.steps.filter(kind=Kind.REVERT).order_by("number").last()
    return Outcome.FAILED if revert is not None and revert.answer == Answer.BAD else Outcome.PASSED

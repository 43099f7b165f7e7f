"""What the bisections of one finding say together, once all of them have ended."""

from collections.abc import Sequence

from django.db import transaction

from server.core.models import Transition
from server.core.tasks import enqueue
from server.detection.bisecting.beginning import CHANGED
from server.detection.bisecting.knowledge import Answer, Kind, not_seen_again
from server.detection.bisecting.words import together
from server.detection.explaining import explain_finding
from server.detection.heads.joining import join_same_change
from server.detection.heads.releasing import release_others
from server.detection.lifecycle.checks import Check, Name, Outcome, checks_named, set_checks
from server.detection.lifecycle.invalidating import Why, invalidate
from server.detection.models import Bisection, BisectionState, Finding
from server.detection.results import remake
from server.sources.models import Revision


def settle(finding_id: int) -> None:
    """BISECTING -> CONFIRMED (or REPORTED, as before) with the culprit, where all that found one agree.

    Cells in which fresh boots of both ends show no change are heard no more; -> INVALID where nothing is left.

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
        # What was read before had no culprit to look for: commits that mend it may be among it.
        set_checks(finding, [Name.FIX_SEARCH], [])
        if not _stands(finding, [bisection for bisection in bisections if not_seen_again(bisection)]):
            invalidate(finding, actor="", why=Why.NOISE, reason=together(bisections))
            return
        finding.advance(_state_before(finding), together(bisections), culprit=_culprit(bisections))
        if not join_same_change(finding):
            release_others(finding)
        enqueue("reports.sweep")


def _stands(finding: Finding, noise: Sequence[Bisection]) -> bool:
    """Whether it claims a change still, without the cells in which fresh boots show none."""
    if not noise:
        return True
    now = [_not_again(bisection) for bisection in noise]
    set_checks(finding, [Name.AGAIN], [*_of_other_cells(finding, now), *now])
    remake(finding)
    explain_finding(finding)
    return finding.kind in CHANGED


def _of_other_cells(finding: Finding, now: Sequence[Check]) -> list[Check]:
    """What an earlier search took away by another cell stays away."""
    told = {pk for check in now for pk in check.comparisons}
    rows = [row for row in checks_named(finding, Name.AGAIN) if not told.intersection(row["comparisons"])]
    return [
        Check(Name.AGAIN, Outcome.FAILED, row["text"], row["machine"], row["uarch"], tuple(row["comparisons"]))
        for row in rows
    ]


def _not_again(bisection: Bisection) -> Check:
    machine = bisection.machine
    return Check(
        Name.AGAIN,
        Outcome.FAILED,
        bisection.reason,
        machine=machine.name,
        uarch=machine.uarch.name,
        comparisons=(bisection.target_id,),
    )


def _state_before(finding: Finding) -> str:
    """What was told to people before somebody had it bisected is not told again."""
    begun = Transition.objects.filter(
        subject="finding", subject_id=finding.pk, after=Finding.State.BISECTING, before=Finding.State.REPORTED
    )
    return Finding.State.REPORTED if begun.exists() else Finding.State.CONFIRMED


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
    revert = bisection.current_steps().filter(kind=Kind.REVERT).order_by("number").last()
    return Outcome.FAILED if revert is not None and revert.answer == Answer.BAD else Outcome.PASSED

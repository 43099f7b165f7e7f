"""Ends of bisections in the words of their machines, what all of one finding say together, and what a person may do
about them.
"""

import math
from collections.abc import Sequence

from django.db import transaction

from server.core.errors import DomainError
from server.core.models import Transition
from server.core.reasons import Because, Reason
from server.core.tasks import enqueue
from server.detection.bisection.knowledge import Answer, Kind, described, lock, name_of, not_seen_again
from server.detection.bisection.rounds import CHANGED, begin, hold, may_search, search_again, unanswered
from server.detection.branches.release import Why, invalidate, join_same_change, release_others
from server.detection.findings.checks import Check, CheckOutcome, Name, checks_named, set_checks
from server.detection.findings.explanation import explain_finding
from server.detection.findings.result import remake
from server.detection.findings.vector import as_speed
from server.detection.models import Bisection, BisectionState, BisectionStep, Finding
from server.sources.models import Revision

# On logs: what one revision makes, or leaves, of the change is told where it is not nearly all, or nothing, of it.
REST = 0.25


def made_by(bisections: Sequence[Bisection]) -> str:
    """Of bisections that checked the same culprit: made by patch 4 of 6: SUBJECT (1.7x slower in time on zen3)."""
    first = bisections[0]
    ratios = ", ".join(_ratio(bisection) for bisection in bisections)
    remarks = list(dict.fromkeys(_of_revert(bisection) for bisection in bisections))
    if len(remarks) > 1:
        remarks = [f"{bisection.machine.uarch.name}: {_of_revert(bisection)}" for bisection in bisections]
    return f"made by {described(first, first.high)} ({ratios}); {'; '.join(remarks)}"


def together(bisections: Sequence[Bisection]) -> str:
    """What all bisections of a finding say."""
    if len(bisections) == 1:
        return bisections[0].reason
    found = [bisection for bisection in bisections if bisection.state == BisectionState.FOUND]
    agreed = found if found and found[0].culprit_id and len({row.culprit_id for row in found}) == 1 else []
    parts = [made_by(agreed)] if agreed else []
    parts += [f"{row.machine.uarch.name}: {row.reason}" for row in bisections if row not in agreed]
    return "; ".join(parts)


def _ratio(bisection: Bisection) -> str:
    step = bisection.current_steps().filter(kind=Kind.CULPRIT).order_by("number").last()
    ratio = step.ratio if step and step.ratio is not None else math.exp(bisection.effect)
    target = bisection.target
    better = target.metric.better
    part = "" if _share(bisection, ratio) >= 1 - REST else f" of {as_speed(math.exp(bisection.effect), better)}"
    what = f"{target.metric.name} of {target.case.benchmark.name}/{target.case.name} on {bisection.machine.uarch.name}"
    return f"{as_speed(ratio, better)}{part} in {what}"


def _of_revert(bisection: Bisection) -> str:
    step = bisection.current_steps().filter(kind=Kind.REVERT).order_by("number").last()
    if step is not None and step.answer == Answer.GOOD:
        return _what_is_left(bisection, step)
    why = step.reason if step is not None else "nobody asked"
    if step is not None and step.answer == Answer.BAD:
        return f"but without it the change is still there: {why}"
    if step is not None and step.answer == Answer.SKIPPED:
        return f"the kernel without it was not measured: {why}"
    return f"whether the change is gone without it cannot be told: {why}"


def _what_is_left(bisection: Bisection, step: BisectionStep) -> str:
    """Less than half, which is all that was asked: others may have made the rest."""
    if step.ratio is None or what_is_left(bisection, step.ratio) <= REST:
        return "without it the change is gone"
    better = bisection.target.metric.better
    left, whole = (as_speed(ratio, better) for ratio in (step.ratio, math.exp(bisection.effect)))
    return f"without it {left} of {whole} is left: others made the rest"


def what_is_left(bisection: Bisection, ratio: float | None) -> float:
    """The share of the change that a kernel without the culprit shows; none where it was told by its code alone."""
    return 0.0 if ratio is None else _share(bisection, ratio)


def _share(bisection: Bisection, ratio: float) -> float:
    """How much of the change a ratio is, on logs."""
    return math.log(ratio) / bisection.effect if ratio > 0 and bisection.effect else 1.0


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
            finding.bisections.select_related(
                "machine__uarch", "culprit", "target__case__benchmark", "target__metric"
            ).order_by("machine__name")
        )
        if any(bisection.state not in Bisection.FINAL for bisection in bisections):
            return
        set_checks(finding, [Name.BISECTION], [_check(bisection) for bisection in bisections])
        # What was read before had no culprit to look for: commits that mend it may be among it.
        set_checks(finding, [Name.FIX_SEARCH], [])
        if not _stands(finding, [bisection for bisection in bisections if not_seen_again(bisection)]):
            invalidate(finding, actor="", why=Why.NOISE, reason=together(bisections))
            return
        finding.advance(_state_before(finding), Because.SEARCHED(together(bisections)), culprit=_culprit(bisections))
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
    rows = [
        (row, tuple(pk for pk in row["comparisons"] if pk not in told)) for row in checks_named(finding, Name.AGAIN)
    ]
    return [
        Check(Name.AGAIN, CheckOutcome.FAILED, row["text"], row["machine"], row["uarch"], left)
        for row, left in rows
        if left
    ]


def _not_again(bisection: Bisection) -> Check:
    machine = bisection.machine
    return Check(
        Name.AGAIN,
        CheckOutcome.FAILED,
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


def _outcome(bisection: Bisection) -> CheckOutcome:
    if not_seen_again(bisection):
        return CheckOutcome.FAILED
    if bisection.state != BisectionState.FOUND or bisection.culprit_id is None:
        return CheckOutcome.NOT_CHECKED
    revert = bisection.current_steps().filter(kind=Kind.REVERT).order_by("number").last()
    return CheckOutcome.FAILED if revert is not None and revert.answer == Answer.BAD else CheckOutcome.PASSED


_MOST_NAMES = 6


def found(bisection: Bisection) -> None:
    """The culprit shows the change against its parent, and it is known what is left without it."""
    if bisection.advance(BisectionState.FOUND, Because.FOUND(made_by([bisection]))):
        settle(bisection.finding_id)


def tell_range(bisection: Bisection, why: str) -> None:
    """FOUND, without a culprit: one of several."""
    inside = range(bisection.low + 1, bisection.high + 1)
    names = [name_of(bisection, index) for index in inside]
    shown = [*names[: _MOST_NAMES - 1], "...", names[-1]] if len(names) > _MOST_NAMES else names
    told = Because.RANGE(f"one of {len(names)} revisions ({', '.join(shown)}): {why}")
    if bisection.advance(BisectionState.FOUND, told):
        settle(bisection.finding_id)


def give_up(bisection: Bisection, reason: str) -> None:
    """GAVE_UP, with what is known all the same: where it lies, as far as the search came."""
    count = bisection.high - bisection.low
    known = ""
    if count == 1 and not bisection.current_steps().filter(kind=BisectionStep.Kind.CULPRIT).exclude(answer="").exists():
        known = f"; the first with the change is {described(bisection, bisection.high)}"
    elif 1 < count < len(bisection.revisions) - 1:
        known = f"; it is one of the {count} from {described(bisection, bisection.low + 1)} to "
        known += name_of(bisection, bisection.high)
    if bisection.advance(BisectionState.GAVE_UP, Because.NOT_FOUND(f"{reason}{known}"), culprit=None):
        _close_steps(bisection, reason)
        settle(bisection.finding_id)


def cancel_bisection(bisection: Bisection, reason: Reason, *, actor: str = "") -> None:
    """Nobody asks any more; the sweep cancels its trials. DomainError `bisection-over` when it has ended."""
    if bisection.state in Bisection.FINAL or not bisection.advance(
        BisectionState.CANCELED, reason, actor=actor, culprit=None
    ):
        raise DomainError("bisection-over", f"{bisection} has ended: {bisection.reason}")
    _close_steps(bisection, reason)
    settle(bisection.finding_id)


def _close_steps(bisection: Bisection, reason: str) -> None:
    bisection.current_steps().filter(answer="").update(answer=BisectionStep.Answer.UNSURE, reason=reason)


_WHY_NOT = "there is nothing to look for, a newer version has come, or this site does not bisect"


def ask_to_bisect(finding: Finding, actor: str) -> None:
    """Begin now what did not begin by itself, or search anew where a search gave up or was canceled.

    DomainError `not-bisected`, with the reason, where that cannot be.
    """
    _require(actor)
    with transaction.atomic():
        bisections, held = hold(finding.pk)
        if held.bisections.exists():
            _ask_again(held, bisections, actor)
            return
        if begin(held, actor=actor) or held.culprit_id is not None:
            return
        said = next((row["text"] for row in held.checks if row.get("name") == "bisection"), "")
    raise DomainError("not-bisected", f"finding {finding.pk} ({finding.kind}, {finding.state}): {said or _WHY_NOT}")


def _ask_again(finding: Finding, bisections: Sequence[Bisection], actor: str) -> None:
    """Another round of the searches that have no answer."""
    if finding.bisections.exclude(state__in=Bisection.FINAL).exists():
        raise DomainError("not-bisected", f"finding {finding.pk} is being bisected")
    ended = unanswered(bisections)
    if not ended:
        raise DomainError("not-bisected", f"finding {finding.pk} was bisected already, with an answer")
    if not may_search(finding):
        raise DomainError("not-bisected", f"finding {finding.pk} ({finding.kind}, {finding.state}): {_WHY_NOT}")
    if not search_again(
        finding, bisections, ended, reason=Because.SEARCHED_AGAIN("looking for its revision once more"), actor=actor
    ):
        raise DomainError("not-bisected", f"finding {finding.pk}: no cell speaks for its change there any more")


def cancel_by_hand(finding: Finding, actor: str, reason: str) -> int:
    """End all bisections of the finding that are under way; returns how many."""
    _require(actor)
    if not reason.strip():
        raise DomainError("no-reason", "say why it is canceled")
    with transaction.atomic():
        running = finding.bisections.exclude(state__in=Bisection.FINAL).order_by("pk")
        bisections = [lock(pk) for pk in running.values_list("pk", flat=True)]
        if not bisections:
            raise DomainError("not-bisecting", f"finding {finding.pk} is not being bisected")
        for bisection in bisections:
            cancel_bisection(bisection, Because.BY_PERSON(reason.strip()), actor=actor)
        enqueue("detection.tend", "bisections")
    return len(bisections)


def _require(actor: str) -> None:
    if not actor.strip():
        raise DomainError("no-actor", "say who does it")

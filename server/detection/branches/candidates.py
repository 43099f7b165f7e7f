"""Suspects become candidates, one finding for each change, and are booted again to confirm them."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, Max, Min, OuterRef

from server.core.reasons import Because
from server.core.states import new_trace
from server.detection.branches.change_points import (
    Span,
    claimed_span,
    likely_span,
    nearby,
    span_of,
    suspected_headline,
    suspected_kind,
)
from server.detection.models import ChangePoint, Comparison, Finding, MeasuredHead, Verdict
from server.lab.models import Machine, Trial
from server.lab.trials.life import cancel_trial
from server.lab.trials.question import USUAL_LOOKS, Ask, machines_for, want_trial
from server.sources.models import Branch

_STANDING = (ChangePoint.State.SUSPECT, ChangePoint.State.SETTLED)


def drop_empty(branch: Branch) -> int:
    """End the branch's candidates that no change point speaks for any more and that fresh boots have not judged yet.

    Returns how many. What fresh boots have seen does not depend on the timelines any more.
    """
    speaking = ChangePoint.objects.filter(finding=OuterRef("pk"), state__in=_STANDING)
    candidates = Finding.objects.filter(branch=branch, state=Finding.State.CANDIDATE).exclude(Exists(speaking))
    dropped = 0
    for finding in candidates.select_related("trial").order_by("pk"):
        if finding.trial is not None and finding.trial.state in Trial.FINAL:
            continue
        machine = finding.change_points.filter(state=ChangePoint.State.MACHINE).exists()
        reason = Because.MACHINE_EVENT() if machine else Because.TAKEN_BACK()
        with transaction.atomic():
            # The trial before its finding, as whoever answers a trial holds them; one that is over speaks for itself.
            if finding.trial is None or cancel_trial(finding.trial, reason):
                dropped += finding.advance(Finding.State.INVALID, reason)
    return dropped


# A change of a tree that may be there is worth more than one more point of its timelines.
_PRIORITY = 1


def want_confirmation(finding: Finding, points: Sequence[ChangePoint]) -> Trial:
    """Ask for the trial of a candidate that these change points made, and note it in the row."""
    assert finding.before is not None
    assert finding.after is not None
    trial = want_trial(
        Ask(
            key=f"confirm:{finding.pk}",
            purpose=Trial.Purpose.CONFIRM,
            base=finding.before,
            patched=finding.after,
            looks=USUAL_LOOKS,
            trace=finding.trace,
            machines=tuple(_machines(finding, points)),
            benchmarks=tuple(sorted({f"{p.timeline.case.benchmark.name}/{p.timeline.case.name}" for p in points})),
            budget_seconds=settings.CONFIRM_HOURS * 3600,
            priority=_PRIORITY,
        )
    )
    Finding.objects.filter(pk=finding.pk).update(trial=trial)
    finding.trial = trial
    return trial


def asked_for(trial: Trial, points: Sequence[ChangePoint]) -> list[ChangePoint]:
    """The points whose case and machine the trial was to measure: others joined the finding after it was asked for.

    What it was to measure and could not is not asked again, or a machine that is away would be waited for for ever.
    """
    machines = set(trial.machines.values_list("pk", flat=True))
    entries = tuple(trial.benchmarks)
    return [
        point
        for point in points
        if point.timeline.machine_id in machines
        and f"{point.timeline.case.benchmark.name}/{point.timeline.case.name}".startswith(entries)
    ]


def _machines(finding: Finding, points: Sequence[ChangePoint]) -> list[Machine]:
    """The machines that moved, all others of their microarchitectures, and one of each other microarchitecture.

    A machine beside one that moved tells a change of the code from something of that machine; one of each other
    microarchitecture is enough for the vector.
    """
    chosen = {point.timeline.machine_id: point.timeline.machine for point in points}
    moved = {machine.uarch_id for machine in chosen.values()}
    others = set[int]()
    assert finding.branch is not None
    for machine in machines_for(finding.branch.tree).filter(virtual=finding.virtual).order_by("name"):
        if machine.uarch_id in moved or machine.uarch_id not in others:
            chosen.setdefault(machine.pk, machine)
            others.add(machine.uarch_id)
    return sorted(chosen.values(), key=lambda machine: machine.name)


# A finding in one of these states still speaks for its change; CANDIDATE: it may soon.
_CLAIMS = (Finding.State.CANDIDATE, *Finding.STANDING)
# Heads before the newest that are looked at, and before a suspect that is older than those: more than any margin, and
# the former more than a watch looks back.
_AROUND, _BEFORE = 200, 20


@dataclass(frozen=True)
class _Branch:
    """Where the measured heads of a branch are, in order, and the findings among them that claim something."""

    head: MeasuredHead
    places: tuple[int, ...]
    claims: list[tuple[Finding, Span]]


def take_up_news(head: MeasuredHead, suspects: Sequence[ChangePoint]) -> None:
    """Put each new suspect to the finding it belongs to, or to a new one; end findings that lost all of theirs.

    Runs in the transaction in which the head is observed.
    """
    drop_empty(head.branch)
    if not suspects:
        return
    branch = _read(head, min(point.before_place for point in suspects))
    left = []
    for point in sorted(suspects, key=lambda one: (-one.score, one.pk)):
        if finding := _claimed_by(branch, point):
            ChangePoint.objects.filter(pk=point.pk).update(finding=finding)
        elif not _was_refuted(point):
            left.append(point)
    spans = {point.pk: likely_span([point], branch.places) for point in left}
    while left:
        alike = [one for one in left if one.place == left[0].place and spans[one.pk].overlaps(spans[left[0].pk])]
        span = likely_span(alike, branch.places)
        # The first one is always among them, or this would not end.
        together = [one for one in left if one is left[0] or spans[one.pk].overlaps(span)]
        _make_candidate(branch, together, span)
        left = [one for one in left if one not in together]


def _read(head: MeasuredHead, oldest: int) -> _Branch:
    """With heads from well before the place `oldest`: a finding may let go of a change of long ago."""
    measured = MeasuredHead.objects.filter(fleet__heads=head.pk)
    newest = measured.order_by("-place").values_list("place", flat=True)[:_AROUND]
    before = measured.filter(place__lte=oldest).order_by("-place").values_list("place", flat=True)[:_BEFORE]
    first = min([*newest, *before])
    places = tuple(sorted(measured.filter(place__gte=first).values_list("place", flat=True)))
    findings = Finding.objects.filter(branch=head.branch, state__in=_CLAIMS).select_related("before", "culprit")
    claims = [(finding, span) for finding in findings.order_by("pk") if (span := claimed_span(finding))]
    return _Branch(head, places, claims)


def _claimed_by(branch: _Branch, point: ChangePoint) -> Finding | None:
    """The finding whose change this may be, by the places that the step may have.

    Near a finding that stands, the same cell moving the same way is the same step, seen again. A cell that moves the
    other way is not, nor one that its fresh boots have seen stand still.
    """
    own = likely_span([point], branch.places)
    around = nearby(point, own, branch.places)
    for finding, span in branch.claims:
        stands = finding.state in Finding.STANDING
        if not own.overlaps(span) and not (stands and around.overlaps(span)):
            continue
        if stands and _stood_still(finding, point):
            continue
        same, opposite = _directions(finding, point)
        if same or (own.overlaps(span) and not opposite):
            return finding
    return None


def _directions(finding: Finding, point: ChangePoint) -> tuple[bool, bool]:
    """Whether the finding's change points hold the cell, on any machine, moving as this one does, and otherwise."""
    cell = {"timeline__case": point.timeline.case_id, "timeline__metric": point.timeline.metric_id}
    effects = list(finding.change_points.filter(**cell).values_list("effect", flat=True))
    same = [effect for effect in effects if (effect > 0) == (point.effect > 0)]
    return bool(same), len(same) < len(effects)


def _stood_still(finding: Finding, point: ChangePoint) -> bool:
    """Whether the finding's fresh boots looked at this cell of the microarchitecture, and would have seen it move."""
    timeline = point.timeline
    rows = Comparison.objects.filter(
        session__trial=finding.trial_id,
        session__machine__uarch=timeline.machine.uarch_id,
        case=timeline.case_id,
        metric=timeline.metric_id,
    )
    told = list(rows.values_list("verdict", "mde"))
    return bool(told) and all(
        verdict == Verdict.UNCHANGED and (mde or 0.0) < abs(point.effect) for verdict, mde in told
    )


def _was_refuted(point: ChangePoint) -> bool:
    """Whether fresh boots have looked at this very cell between these heads, and it had not moved."""
    refuted = ChangePoint.objects.filter(
        timeline=point.timeline_id, state=ChangePoint.State.WITHDRAWN, finding__state=Finding.State.INVALID
    )
    for other in refuted.select_related("finding"):
        span = span_of(other.finding) if other.finding else None
        if span and span.before <= point.before_place and point.place <= span.after:
            values = {"state": ChangePoint.State.WITHDRAWN, "finding": other.finding_id}
            ChangePoint.objects.filter(pk=point.pk).update(**values)
            return True
    return False


def _make_candidate(branch: _Branch, points: Sequence[ChangePoint], span: Span) -> None:
    span = _within(span, _between_others(points, span))
    before, after = _heads_at(branch, span)
    # The same two heads may have been compared before, for other cells: one more head makes another question of it.
    while Finding.objects.filter(branch=branch.head.branch, before=before.revision, after=after.revision).exists():
        wider = _one_more(branch, span)
        if wider == span:
            return
        span = wider
        before, after = _heads_at(branch, span)
    finding = Finding.objects.create(
        branch=branch.head.branch,
        before=before.revision,
        after=after.revision,
        state=Finding.State.CANDIDATE,
        kind=suspected_kind(points),
        headline=suspected_headline(points),
        virtual=points[0].timeline.machine.virtual,
        trace=new_trace(),
        **Because.SUSPECTED(f"{len(points)} timelines moved at place {points[0].place}").columns(),
    ).record_creation()
    ChangePoint.objects.filter(pk__in=[point.pk for point in points]).update(finding=finding)
    branch.claims.append((finding, span))
    want_confirmation(finding, points)


def _between_others(points: Sequence[ChangePoint], span: Span) -> Span:
    """The levels that these timelines have at the step reach to their other steps, and not further."""
    own = [point.pk for point in points]
    first, last = min(point.place for point in points), max(point.place for point in points)
    others = ChangePoint.objects.filter(timeline__in=[point.timeline_id for point in points]).exclude(pk__in=own)
    others = others.exclude(state=ChangePoint.State.WITHDRAWN)
    low = others.filter(place__lt=first).aggregate(at=Max("place"))["at"]
    high = others.filter(before_place__gte=last).aggregate(at=Min("before_place"))["at"]
    return Span(span.before if low is None else low, span.after if high is None else high)


def _within(span: Span, limits: Span) -> Span:
    return Span(max(span.before, limits.before), min(span.after, limits.after))


def _one_more(branch: _Branch, span: Span) -> Span:
    low, high = branch.places.index(span.before) - 1, branch.places.index(span.after) + 1
    return Span(branch.places[max(low, 0)], branch.places[min(high, len(branch.places) - 1)])


def _heads_at(branch: _Branch, span: Span) -> tuple[MeasuredHead, MeasuredHead]:
    heads = MeasuredHead.objects.filter(branch=branch.head.branch, reference=branch.head.reference)
    found = {head.place: head for head in heads.filter(place__in=(span.before, span.after)).select_related("revision")}
    return found[span.before], found[span.after]

"""Suspects become candidates: those of one change together are one finding, and are never claimed twice."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Max, Min

from server.core.states import new_trace
from server.detection.heads.boundaries import SAME_WITHIN, Span, margin, widened
from server.detection.heads.confirming import want_confirmation
from server.detection.heads.withdrawing import drop_empty
from server.detection.heads.wording import suspected_headline, suspected_kind
from server.detection.models import ChangePoint, Finding, MeasuredHead

# A finding in one of these states still speaks for its change; CANDIDATE: it may soon.
_CLAIMS = (Finding.State.CANDIDATE, *Finding.STANDING)
# Heads before and after a suspect that are looked at: more than any margin, and than a watch looks back.
_AROUND = 200


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
    branch = _read(head)
    left = []
    for point in sorted(suspects, key=lambda one: (-one.score, one.pk)):
        if finding := _claimed_by(branch, point):
            ChangePoint.objects.filter(pk=point.pk).update(finding=finding)
        elif not _was_refuted(point):
            left.append(point)
    while left:
        first = left[0]
        core = _core([one for one in left if one.place == first.place])
        together = [one for one in left if one.place == first.place or _interval(one).overlaps(core)]
        left = [one for one in left if one not in together]
        _make_candidate(branch, together, core)


def _read(head: MeasuredHead) -> _Branch:
    measured = MeasuredHead.objects.filter(fleet__heads=head.pk).order_by("-place")[:_AROUND]
    places = tuple(sorted(measured.values_list("place", flat=True)))
    findings = Finding.objects.filter(branch=head.branch, state__in=_CLAIMS).order_by("pk")
    ends = {pk for finding in findings for pk in (finding.before_id, finding.after_id)}
    ended = MeasuredHead.objects.filter(branch=head.branch, revision__in=ends)
    standing = dict(ended.values_list("revision_id", "place"))
    claims = [
        (finding, Span(standing[finding.before_id], standing[finding.after_id]))
        for finding in findings
        if finding.before_id in standing and finding.after_id in standing
    ]
    return _Branch(head, places, claims)


def _interval(point: ChangePoint) -> Span:
    return Span(point.before_place, point.place)


def _core(points: Sequence[ChangePoint]) -> Span:
    """Where the change lies if all points, at one place, are placed right: machines that skipped heads know less."""
    return Span(max(point.before_place for point in points), points[0].place)


def _claimed_by(branch: _Branch, point: ChangePoint) -> Finding | None:
    """The finding whose change this may be, by the places that the step may have.

    The same cell moving the same way within two heads is the same step, seen again; moving the other way it is not.
    """
    own = widened(_interval(point), branch.places, margin([point]))
    nearby = widened(_interval(point), branch.places, SAME_WITHIN)
    for finding, span in branch.claims:
        if not nearby.overlaps(span) and not own.overlaps(span):
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


def _was_refuted(point: ChangePoint) -> bool:
    """Whether fresh boots have looked at this very cell between these heads, and it had not moved."""
    refuted = ChangePoint.objects.filter(
        timeline=point.timeline_id, state=ChangePoint.State.WITHDRAWN, finding__state=Finding.State.INVALID
    )
    low, high = point.before_place, point.place
    again = refuted.filter(place__gt=low - SAME_WITHIN, before_place__lt=high + SAME_WITHIN).first()
    if again is None:
        return False
    ChangePoint.objects.filter(pk=point.pk).update(state=ChangePoint.State.WITHDRAWN, finding=again.finding_id)
    return True


def _make_candidate(branch: _Branch, points: Sequence[ChangePoint], core: Span) -> None:
    within = _between_others(branch, points, core)
    by = margin(points)
    before, after = _heads_at(branch, widened(core, branch.places, by, within=within))
    # The same two heads may have been compared before, for other cells: one more head makes another question of it.
    while Finding.objects.filter(branch=branch.head.branch, before=before.revision, after=after.revision).exists():
        by += 1
        wider = _heads_at(branch, widened(core, branch.places, by, within=Span(branch.places[0], branch.places[-1])))
        if wider == (before, after):
            return
        before, after = wider
    finding = Finding.objects.create(
        branch=branch.head.branch,
        before=before.revision,
        after=after.revision,
        state=Finding.State.CANDIDATE,
        kind=suspected_kind(points),
        headline=suspected_headline(points),
        virtual=points[0].timeline.machine.virtual,
        trace=new_trace(),
        reason=f"{len(points)} timelines moved at place {points[0].place}",
    ).record_creation()
    ChangePoint.objects.filter(pk__in=[point.pk for point in points]).update(finding=finding)
    branch.claims.append((finding, Span(before.place, after.place)))
    want_confirmation(finding, points)


def _between_others(branch: _Branch, points: Sequence[ChangePoint], core: Span) -> Span:
    """The levels that these timelines have at the step reach to their other steps, and not further."""
    own = [point.pk for point in points]
    others = ChangePoint.objects.filter(timeline__in=[point.timeline_id for point in points]).exclude(pk__in=own)
    others = others.exclude(state=ChangePoint.State.WITHDRAWN)
    low = others.filter(place__lte=core.before).aggregate(at=Max("place"))["at"]
    high = others.filter(before_place__gte=core.after).aggregate(at=Min("before_place"))["at"]
    return Span(branch.places[0] if low is None else low, branch.places[-1] if high is None else high)


def _heads_at(branch: _Branch, span: Span) -> tuple[MeasuredHead, MeasuredHead]:
    heads = MeasuredHead.objects.filter(branch=branch.head.branch, reference=branch.head.reference)
    found = {head.place: head for head in heads.filter(place__in=(span.before, span.after)).select_related("revision")}
    return found[span.before], found[span.after]

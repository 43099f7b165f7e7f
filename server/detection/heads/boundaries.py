"""Between which two heads a finding is claimed."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from server.detection.models import ChangePoint, Finding, MeasuredHead

# A step near one of the same cell and direction is that one, seen again.
SAME_WITHIN = 2


@dataclass(frozen=True)
class Span:
    """From a head that has the old level to one that has the new; both are places."""

    before: int
    after: int

    def overlaps(self, other: "Span") -> bool:
        return self.before < other.after and other.before < self.after


def nearby(point: ChangePoint, own: Span, places: Sequence[int]) -> Span:
    """Two heads more on each side of where a step was published, where it may lie there; else where it may: `own`."""
    low = bisect_left(places, point.before_place) - SAME_WITHIN
    high = bisect_left(places, point.place) + SAME_WITHIN
    around = Span(places[max(low, 0)], places[min(high, len(places) - 1)])
    return around if around.overlaps(own) else own


def span_of(finding: Finding) -> Span | None:
    """Between which places a finding is claimed."""
    ends = MeasuredHead.objects.filter(branch=finding.branch_id, revision__in=(finding.before_id, finding.after_id))
    places = dict(ends.values_list("revision_id", "place"))
    if finding.before_id not in places or finding.after_id not in places:
        return None
    return Span(places[finding.before_id], places[finding.after_id])


def claimed_span(finding: Finding) -> Span | None:
    """As `span_of`; where bisection has found the culprit, the change is there and nowhere else between the heads."""
    span = span_of(finding)
    if span is None or finding.culprit is None or finding.before is None:
        return span
    searches = finding.bisections.filter(culprit=finding.culprit)
    revisions = searches.values_list("revisions", flat=True).first() or []
    if finding.culprit.sha not in revisions or revisions[0] != finding.before.sha:
        return span
    place = span.before + revisions.index(finding.culprit.sha)
    return Span(place - 1, place) if place <= span.after else span

"""Change points that turn out not to belong to the finding that they had joined."""

from collections.abc import Sequence

from server.detection.heads.boundaries import claimed_span, nearby
from server.detection.heads.candidates import take_up_news
from server.detection.heads.confirming import asked_for
from server.detection.heads.placing import likely_span
from server.detection.heads.publishing import POINT_PARTS
from server.detection.models import ChangePoint, Finding, MeasuredHead

_OPEN = (ChangePoint.State.SUSPECT, ChangePoint.State.SETTLED)


def release_others(finding: Finding) -> int:
    """Let go of what moved somewhere else than at the culprit: it is another change; returns how many points.

    While the culprit is not known, a finding holds all that may have moved between its two heads. Runs in the
    transaction of the caller, who holds the finding.
    """
    span = claimed_span(finding)
    points = list(finding.change_points.filter(state__in=_OPEN).select_related(*POINT_PARTS).order_by("pk"))
    if finding.culprit is None or span is None or not points:
        return 0
    heads = MeasuredHead.objects.filter(branch=finding.branch_id, reference=points[0].timeline.reference_id)
    places = sorted(set(heads.exclude(fleet=None).values_list("place", flat=True)))
    away = []
    for point in points:
        own = likely_span([point], places)
        if not own.overlaps(span) and not nearby(point, own, places).overlaps(span):
            away.append(point)
    ask_otherwise(finding, away)
    return len(away)


def release_unasked(finding: Finding) -> int:
    """Let go of what joined a finding, now withdrawn, after its fresh boots were asked for; returns how many points.

    They have not spoken of it, and its timeline does not tell it twice. Runs in the transaction of the caller, who
    holds the finding.
    """
    if finding.branch_id is None or finding.trial is None:
        return 0
    points = list(finding.change_points.filter(state__in=_OPEN).select_related(*POINT_PARTS).order_by("pk"))
    asked = asked_for(finding.trial, points)
    away = [point for point in points if point not in asked]
    ask_otherwise(finding, away)
    return len(away)


def ask_otherwise(finding: Finding, points: Sequence[ChangePoint]) -> None:
    """The points get a question of their own: the finding does not speak for them."""
    if not points:
        return
    own = ChangePoint.objects.filter(pk__in=[point.pk for point in points])
    own.update(finding=None)
    timeline = points[0].timeline
    heads = MeasuredHead.objects.filter(
        branch=finding.branch_id, reference=timeline.reference_id, fleet__virtual=timeline.machine.virtual
    )
    newest = heads.select_related("branch__tree", "reference", "trial").order_by("-place").first()
    if newest is not None:
        take_up_news(newest, list(own.select_related(*POINT_PARTS).order_by("pk")))

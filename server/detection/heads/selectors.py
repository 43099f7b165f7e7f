"""What pages and other parts ask about branches over time."""

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.db.models import OuterRef, QuerySet, Subquery

from server.detection.models import ChangePoint, Finding, MeasuredHead, Timeline, TimelinePoint
from server.lab.models import Machine
from server.sources.models import Branch


@dataclass(frozen=True)
class ChangePointView:
    """A published step: `sha` is the first head of the new level, `ratio` its level / the one before."""

    place: int
    sha: str
    before_sha: str
    ratio: float
    state: str
    finding_id: int | None


@dataclass(frozen=True)
class TimelineView:
    """One (machine, case, metric, core type) of a branch; `last_ratio` is head / reference, None before any point."""

    id: int
    machine: str
    uarch: str
    benchmark: str
    case: str
    metric: str
    unit: str
    better: str
    core_type: str
    reference_sha: str
    points: int
    last_ratio: float | None
    change_points: tuple[ChangePointView, ...]


@dataclass(frozen=True)
class PointView:
    place: int
    sha: str
    committed_at: datetime
    ratio: float
    low: float | None
    high: float | None


def branch_findings(branch: Branch) -> QuerySet[Finding]:
    """Of a branch, newest first; with what pages name of them."""
    named = Finding.objects.filter(branch=branch).select_related("before", "after", "culprit", "fix")
    return named.defer(*Finding.LONG).order_by("-id")


def timelines_of(branch: Branch, machine: Machine | None = None) -> QuerySet[Timeline]:
    """Timelines of a branch, those of one reference together."""
    rows = Timeline.objects.filter(branch=branch)
    if machine is not None:
        rows = rows.filter(machine=machine)
    order = ("-reference_id", "machine__name", "case__benchmark__name", "case__name", "metric__name", "core_type__name")
    return rows.order_by(*order, "pk")


def timeline_views(branch: Branch, ids: Iterable[int]) -> tuple[TimelineView, ...]:
    """What pages show of these timelines of the branch, in the order of all. Three queries."""
    newest = TimelinePoint.objects.filter(timeline=OuterRef("pk")).order_by("-place").values("ratio")[:1]
    rows = timelines_of(branch).filter(pk__in=ids).annotate(newest_ratio=Subquery(newest)).defer("watch")
    named = list(rows.select_related("machine__uarch", "case__benchmark", "metric", "core_type", "reference"))
    points = _change_points(branch, named)
    return tuple(
        TimelineView(
            id=one.pk,
            machine=one.machine.name,
            uarch=one.machine.uarch.name,
            benchmark=one.case.benchmark.name,
            case=one.case.name,
            metric=one.metric.name,
            unit=one.metric.unit,
            better=one.metric.better,
            core_type=one.core_type.name,
            reference_sha=one.reference.sha,
            points=one.points_seen,
            last_ratio=one.newest_ratio,
            change_points=tuple(points[one.pk]),
        )
        for one in named
    )


def points_of(timeline_id: int, limit: int = 500) -> tuple[PointView, ...]:
    """The last points of a timeline, in the order of their places. One query."""
    rows = TimelinePoint.objects.filter(timeline=timeline_id).select_related("head__revision").order_by("-place")
    return tuple(
        PointView(
            place=row.place,
            sha=row.head.revision.sha,
            committed_at=row.head.revision.committed_at,
            ratio=row.ratio,
            low=row.ratio_low,
            high=row.ratio_high,
        )
        for row in reversed(rows[:limit])
    )


def _change_points(branch: Branch, timelines: Iterable[Timeline]) -> defaultdict[int, list[ChangePointView]]:
    rows = list(ChangePoint.objects.filter(timeline__in=[one.pk for one in timelines]).order_by("place"))
    places = {place for row in rows for place in (row.place, row.before_place)}
    heads = MeasuredHead.objects.filter(branch=branch, place__in=places)
    shas = dict(heads.values_list("place", "revision__sha"))
    found = defaultdict[int, list[ChangePointView]](list)
    for row in rows:
        found[row.timeline_id].append(
            ChangePointView(
                place=row.place,
                sha=shas.get(row.place, ""),
                before_sha=shas.get(row.before_place, ""),
                ratio=math.exp(row.effect),
                state=row.state,
                finding_id=row.finding_id,
            )
        )
    return found

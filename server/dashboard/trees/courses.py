"""The course of one case over the heads of a branch: a lane for each machine that measures it, under each other."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.urls import reverse

from server.dashboard.pictures.axis import told
from server.dashboard.pictures.course import (
    Course,
    CourseEvent,
    CourseFlag,
    CourseHead,
    CourseLane,
    CoursePoint,
    CourseStep,
)
from server.dashboard.rows import figures
from server.dashboard.trees.step_places import PlacedStep, placed, with_places
from server.detection.models import ChangePoint, Finding, MachineQuestion, MeasuredHead, Timeline, TimelinePoint

# All lanes together draw so many points at most, and one of them so many.
_MOST_POINTS, _MOST_OF_LANE = 12_000, 5_000
_MOST_LANES = 24
_LISTED = 25
# Beside the lane that was asked for, so many stand in the table.
_MOST_COLUMNS = 5
_STANDING = (ChangePoint.State.SUSPECT, ChangePoint.State.SETTLED)
_NAMES = ("branch__tree", "reference", "machine__uarch", "case__benchmark", "metric", "core_type")


@dataclass(frozen=True, slots=True)
class StepLine:
    """A change of level: from the last head of the old level to the first one of the new."""

    machine: str
    uarch: str
    said: str
    ratio: float
    sha: str
    before_sha: str
    subject: str
    author: str
    state: str
    finding_id: int | None


@dataclass(frozen=True, slots=True)
class Value:
    """What a head showed in one lane, in words and as it is stored; both empty where it was not measured there."""

    said: str
    interval: str


@dataclass(frozen=True, slots=True)
class PointLine:
    place: int
    sha: str
    subject: str
    author: str
    committed_at: datetime
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class TimelinePage:
    """`lanes` are the titles of the columns of `points`, newest first."""

    id: int
    tree: str
    branch: str
    benchmark: str
    case: str
    metric: str
    unit: str
    better: str
    machine: str
    uarch: str
    core_type: str
    virtual: bool
    reference_sha: str
    reference_subject: str
    course: Course
    steps: tuple[StepLine, ...]
    lanes: tuple[str, ...]
    points: figures.Paged[PointLine]
    newest: str
    total: int
    unshown: int


@dataclass(frozen=True, slots=True)
class _Seen:
    """What is known of the lanes of a case. `points` and `changes` are by timeline."""

    timeline: Timeline
    lanes: Sequence[Timeline]
    unshown: int
    points: Mapping[int, Sequence[CoursePoint]]
    heads: Mapping[int, CourseHead]
    changes: Mapping[int, Sequence[PlacedStep]]
    course: Course


def _seen(timeline_id: int) -> _Seen | None:
    """Eight queries at most."""
    timeline = Timeline.objects.select_related(*_NAMES).defer("watch").filter(pk=timeline_id).first()
    if timeline is None:
        return None
    lanes, unshown = _lanes_beside(timeline)
    points, heads = _points_of(timeline, lanes)
    changes = _changes(lanes)
    events = _events(timeline, lanes)
    drawn = (_lane(lane, points[lane.pk], heads, changes[lane.pk], events[lane.machine_id]) for lane in lanes)
    course = Course(tuple(drawn), heads, _min_effect(timeline))
    return _Seen(timeline, lanes, unshown, points, heads, changes, course)


def course_of(timeline_id: int) -> Course | None:
    """The picture alone, as its script asks for it."""
    seen = _seen(timeline_id)
    return seen.course if seen is not None else None


def timeline_page(timeline_id: int, number: str) -> TimelinePage | None:
    """With the page of that number of its table."""
    seen = _seen(timeline_id)
    if seen is None:
        return None
    timeline, lanes, points = seen.timeline, seen.lanes, seen.points
    own = points[timeline.pk]
    columns = [lane for lane in lanes if points[lane.pk]][: _MOST_COLUMNS + 1]
    return TimelinePage(
        id=timeline.pk,
        tree=timeline.branch.tree.name,
        branch=timeline.branch.name,
        benchmark=timeline.case.benchmark.name,
        case=timeline.case.name,
        metric=timeline.metric.name,
        unit=timeline.metric.unit,
        better=timeline.metric.better,
        machine=timeline.machine.name,
        uarch=timeline.machine.uarch.name,
        core_type=timeline.core_type.name,
        virtual=timeline.machine.virtual,
        reference_sha=timeline.reference.sha,
        reference_subject=timeline.reference.subject,
        course=seen.course,
        steps=tuple(_step_line(lane, one, seen.heads) for lane in lanes for one in seen.changes[lane.pk]),
        lanes=tuple(_title(lane) for lane in columns),
        points=_listed(points, columns, seen.heads, number),
        newest=_against(own[-1], timeline.metric.better) if own else "",
        total=timeline.points_seen,
        unshown=seen.unshown,
    )


def _lanes_beside(timeline: Timeline) -> tuple[list[Timeline], int]:
    """The timelines of the same case, the one that was asked for first, and how many have no room."""
    rows = Timeline.objects.filter(
        branch=timeline.branch_id,
        reference=timeline.reference_id,
        case=timeline.case_id,
        metric=timeline.metric_id,
        machine__virtual=timeline.machine.virtual,
    )
    named = rows.select_related("machine__uarch", "core_type", "metric").defer("watch")
    others = named.exclude(pk=timeline.pk).order_by("machine__uarch__name", "machine__name", "core_type__name", "pk")
    found = list(others[: _MOST_LANES + 1])
    unshown = others.count() - _MOST_LANES + 1 if len(found) >= _MOST_LANES else 0
    return [timeline, *found[: _MOST_LANES - 1]], unshown


def _points_of(
    timeline: Timeline, lanes: Sequence[Timeline]
) -> tuple[defaultdict[int, list[CoursePoint]], Mapping[int, CourseHead]]:
    """The newest points of all lanes, over the same heads. Two queries: names of a head are read once, not by lane."""
    heads = MeasuredHead.objects.filter(branch=timeline.branch_id, reference=timeline.reference_id)
    columns = ("place", "revision__sha", "revision__subject", "revision__author", "revision__committed_at")
    each = min(max(_MOST_POINTS // len(lanes), _LISTED), _MOST_OF_LANE)
    found = {row[0]: CourseHead(*row) for row in heads.order_by("-place").values_list(*columns)[:each]}
    points = defaultdict[int, list[CoursePoint]](list)
    if not found:
        return points, found
    rows = TimelinePoint.objects.filter(timeline__in=[lane.pk for lane in lanes], place__gte=min(found))
    figures_of = rows.order_by("timeline_id", "place").values_list(
        "timeline_id", "place", "ratio", "ratio_low", "ratio_high"
    )
    for lane, place, ratio, low, high in figures_of:
        if place in found and math.isfinite(ratio) and ratio > 0:
            points[lane].append(CoursePoint(place, ratio, low, high))
    return points, found


def _changes(lanes: Sequence[Timeline]) -> defaultdict[int, list[PlacedStep]]:
    rows = ChangePoint.objects.filter(timeline__in=[lane.pk for lane in lanes])
    changes = defaultdict[int, list[PlacedStep]](list)
    for one in placed(with_places(rows.defer(*(f"finding__{name}" for name in Finding.LONG)))):
        changes[one.change.timeline_id].append(one)
    return changes


def _events(timeline: Timeline, lanes: Sequence[Timeline]) -> defaultdict[int, list[CourseEvent]]:
    rows = MachineQuestion.objects.filter(
        branch=timeline.branch_id, place__isnull=False, machine__in={lane.machine_id for lane in lanes}
    )
    events = defaultdict[int, list[CourseEvent]](list)
    for row in rows.order_by("place", "pk"):
        events[row.machine_id].append(CourseEvent(row.place or 0, row.detail))
    return events


def _lane(
    lane: Timeline,
    points: Sequence[CoursePoint],
    heads: Mapping[int, CourseHead],
    changes: Sequence[PlacedStep],
    events: Sequence[CourseEvent],
) -> CourseLane:
    better = lane.metric.better
    standing = sorted((one for one in changes if one.change.state in _STANDING), key=lambda one: one.place)
    steps = [
        CourseStep(
            one.place,
            heads[one.place].sha if one.place in heads else "",
            f"{told(one.ratio, better)} from here on",
        )
        for one in standing
    ]
    flags = [
        CourseFlag(one.place, reverse("finding", args=[found.pk]), f"finding {found.pk}: {found.kind}")
        for one in standing
        if (found := one.change.finding) is not None and _is_shown(found)
    ]
    return CourseLane(str(lane.pk), _title(lane), better, tuple(points), tuple(steps), tuple(flags), tuple(events))


def _is_shown(finding: Finding) -> bool:
    return settings.VIRTUAL_VERDICTS or not finding.virtual


def _title(lane: Timeline) -> str:
    kind = f" {lane.core_type.name}" if lane.core_type.name != "all" else ""
    return f"{lane.machine.uarch.name}{kind} ({lane.machine.name})"


def _step_line(lane: Timeline, change: PlacedStep, heads: Mapping[int, CourseHead]) -> StepLine:
    first, last = heads.get(change.place), heads.get(change.before_place)
    finding = change.change.finding
    return StepLine(
        machine=lane.machine.name,
        uarch=lane.machine.uarch.name,
        said=told(change.ratio, lane.metric.better),
        ratio=change.ratio,
        sha=first.sha if first else "",
        before_sha=last.sha if last else "",
        subject=first.subject if first else "",
        author=first.author if first else "",
        state=change.state,
        finding_id=finding.pk if finding is not None and _is_shown(finding) else None,
    )


def _listed(
    points: Mapping[int, Sequence[CoursePoint]],
    columns: Sequence[Timeline],
    heads: Mapping[int, CourseHead],
    number: str,
) -> figures.Paged[PointLine]:
    by_lane = {lane.pk: {point.place: point for point in points[lane.pk]} for lane in columns}
    places = sorted({place for of in by_lane.values() for place in of}, reverse=True)

    def line(place: int) -> PointLine:
        values = (_value(by_lane[lane.pk].get(place), lane.metric.better) for lane in columns)
        return PointLine(*heads[place], tuple(values))

    return figures.paged(places, number, lambda wanted: [line(place) for place in wanted], _LISTED)


def _against(point: CoursePoint, better: str) -> str:
    size = told(point.ratio, better)
    return f"{size} than the reference" if size.endswith("er") else "As fast as the reference"


def _value(point: CoursePoint | None, better: str) -> Value:
    if point is None:
        return Value("", "")
    return Value(told(point.ratio, better), figures.interval(point.low, point.high))


def _min_effect(timeline: Timeline) -> float:
    newest = timeline.points.order_by("-place").values_list("comparison__min_effect", flat=True)[:1]
    return float(next(iter(newest), 0.0))

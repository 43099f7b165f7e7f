"""Timelines of a branch: as rows, and as the watch over all of them."""

import json
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from django.db import connection
from django.db.models import QuerySet

from server.core.reasons import Because
from server.detection.models import Comparison, FleetState, MeasuredHead, Timeline
from server.detection.trials.scope import trial_scope
from server.lab.models import Trial
from server.results.models import Metric
from server.stats.changepoints.causes import MachineEvent
from server.stats.changepoints.watch import (
    WINDOW,
    FleetWatch,
    Point,
    Watch,
    WatchNews,
    inserted,
    observe_fleet,
    watch_from_dict,
)


def ratios_of(trial: Trial, *, virtual_too: bool | None = None) -> tuple[list[Comparison], bool]:
    """Comparisons with a ratio of the sessions that may be judged together, and whether these are virtual.

    Verdicts do not matter here: a point that says little alone speaks with its neighbours. Where a machine is marked
    otherwise than its boots showed, it has no timeline: it would be mixed with others. What it measured while its
    hardware or firmware was changed is no ratio of kernels.
    """
    scope = trial_scope(trial, virtual_too=virtual_too)
    if scope is None:
        return [], False
    rows = (
        Comparison.objects.filter(session__in=scope.sessions, session__machine__virtual=scope.virtual)
        .exclude(ratio=None)
        .exclude(reason_code=Because.OTHER_MACHINE)
        .select_related("session__machine", "case", "metric", "core_type")
        .order_by("session__machine__name", "case_id", "metric_id", "core_type_id")
    )
    return [row for row in rows if row.ratio is not None and row.ratio > 0], scope.virtual


@dataclass(frozen=True)
class Told:
    """News of one timeline. Places are of heads; `first_place` is where the step was first published.

    `place` is the first head of the new level that has a point, `before_place` the last one of the old level.
    """

    timeline: str
    first_place: int
    place: int
    before_place: int
    effect: float
    score: float
    state: str


@dataclass(frozen=True)
class Looked:
    """The fleet after a head, what is new of its timelines, and events of machines by their names."""

    fleet: FleetWatch
    told: tuple[Told, ...] = ()
    events: tuple[MachineEvent, ...] = ()


def look(fleet: FleetWatch, place: int, values: Mapping[str, float], *, late: bool) -> Looked:
    """The watch after the ratios (by timeline) of the head at a place.

    A late head, one whose place lies before the newest of the fleet, only takes its place among the last points: what
    it says about steps is seen when the next head comes. So each head costs the same, in whatever order they come.
    """
    if late:
        watches = dict(fleet.watches)
        for name, value in values.items():
            watches[name] = inserted(watches[name], Point(place, value))
        return Looked(replace(fleet, watches=watches))
    after, news = observe_fleet(fleet, place, values)
    told = [
        _told(name, one, fleet.watches[name], after.watches[name])
        for name, own in news.timelines.items()
        for one in own
    ]
    return Looked(after, tuple(told), news.events)


def _told(name: str, news: WatchNews, before: Watch, after: Watch) -> Told:
    published = news.published
    index = published.index if news.was is None else news.was
    known = {one.index: one.revision for one in before.published}
    at = bisect_left(after.revisions, published.revision)
    return Told(
        timeline=name,
        first_place=known.get(index, published.revision),
        place=published.revision,
        before_place=after.revisions[max(at - 1, 0)],
        effect=published.effect,
        score=published.score,
        state=published.state.value,
    )


Key = tuple[int, int, int, int]

# A statement with a condition for each row takes longer than all else that is done for a head.
_STORE = """
UPDATE detection_timeline
SET watch = new.watch::jsonb, points_seen = points_seen + 1, last_place = GREATEST(last_place, %s)
FROM unnest(%s::bigint[], %s::text[]) AS new (id, watch)
WHERE detection_timeline.id = new.id
"""


@dataclass
class BranchFleet:
    """The fleet of one branch and reference: its row, its timelines that are awake, and the watch over them.

    Names of timelines are their ids, names of machines as well.
    """

    row: FleetState
    timelines: dict[str, Timeline]
    watch: FleetWatch

    def of(self, comparison: Comparison) -> Timeline:
        return self._by_key[key_of(comparison)]

    def __post_init__(self) -> None:
        self._by_key = {key_of(timeline): timeline for timeline in self.timelines.values()}


def key_of(cell: Comparison | Timeline) -> Key:
    machine = cell.machine_id if isinstance(cell, Timeline) else cell.session.machine_id
    return machine, cell.case_id, cell.metric_id, cell.core_type_id


def read_fleet(head: MeasuredHead, comparisons: Sequence[Comparison], *, virtual: bool) -> BranchFleet:
    """The fleet as it stands, with a timeline for each of the comparisons. Few queries, however long its history is."""
    row, _ = FleetState.objects.get_or_create(branch=head.branch, reference=head.reference, virtual=virtual)
    every = timelines_of(row)
    timelines = {key_of(timeline): timeline for timeline in every.filter(last_place__gte=_awake_from(row))}
    missing = {key_of(one): one for one in comparisons if key_of(one) not in timelines}
    if missing:
        asleep = every.filter(machine__in={key[0] for key in missing}, case__in={key[1] for key in missing})
        timelines |= {key_of(timeline): timeline for timeline in asleep if key_of(timeline) in missing}
        timelines |= _made(row, [one for key, one in missing.items() if key not in timelines])
    named = {str(one.pk): one for one in sorted(timelines.values(), key=lambda one: one.pk)}
    events = tuple((str(machine), int(place)) for machine, place in row.events)
    return BranchFleet(row, named, FleetWatch({name: stored_watch(one) for name, one in named.items()}, events))


def timelines_of(row: FleetState) -> QuerySet[Timeline]:
    every = Timeline.objects.filter(branch=row.branch_id, reference=row.reference_id, machine__virtual=row.virtual)
    return every.select_related("metric", "core_type")


def stored_watch(timeline: Timeline) -> Watch:
    """What the timeline remembers; nothing yet of a new one."""
    return watch_from_dict(timeline.watch) if timeline.watch else new_watch(timeline)


def new_watch(timeline: Timeline) -> Watch:
    """Timelines of one case, metric and kind of core on several machines are one benchmark."""
    better: Literal["lower", "higher"] = "higher" if timeline.metric.better == Metric.Better.HIGHER else "lower"
    return Watch(
        name=str(timeline.pk),
        machine=str(timeline.machine_id),
        benchmark=f"{timeline.case_id}:{timeline.metric_id}:{timeline.core_type.name}",
        better=better,
    )


def store_watches(place: int, watches: Mapping[str, Watch]) -> None:
    """Write what timelines remember after a point of the head at a place; the others did not change."""
    with connection.cursor() as cursor:
        stored = [json.dumps(watch.as_dict()) for watch in watches.values()]
        cursor.execute(_STORE, [place, [int(name) for name in watches], stored])


def awake_from(places: Iterable[int]) -> int:
    """The place from which on a timeline must have had a point to be looked at, of the places observed so far.

    A machine that left the lab, or a case that is measured no longer, has nothing to say about new heads, and others
    must not wait for it.
    """
    newest = sorted(places, reverse=True)[:WINDOW]
    return newest[-1] if len(newest) == WINDOW else 0


def _awake_from(row: FleetState) -> int:
    return awake_from(row.heads.order_by("-place").values_list("place", flat=True)[:WINDOW])


def _made(row: FleetState, cells: Sequence[Comparison]) -> dict[Key, Timeline]:
    made = Timeline.objects.bulk_create(
        Timeline(
            branch_id=row.branch_id,
            reference_id=row.reference_id,
            machine=cell.session.machine,
            case=cell.case,
            metric=cell.metric,
            core_type=cell.core_type,
        )
        for cell in cells
    )
    return {key_of(timeline): timeline for timeline in made}

"""Timelines of a branch made anew, head by head in the order in which they entered, and where they differ."""

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from server.detection.branches.fleet import (
    Key,
    Told,
    awake_from,
    key_of,
    look,
    new_watch,
    ratios_of,
    timelines_of,
)
from server.detection.models import ChangePoint, FleetState, MeasuredHead, Timeline, TimelinePoint
from server.detection.recompute.differences import TOLERANCE, Difference
from server.stats.changepoints.watch import WINDOW, FleetWatch, Watch, watch_from_dict


@dataclass
class Replay:
    """A fleet on its way. It can stop after any head: `rest` is all that it needs to go on elsewhere."""

    row: FleetState
    # How many heads of the fleet were there with the last one that entered.
    reached: int = 0
    watches: dict[str, Watch] = field(default_factory=dict)
    events: tuple[tuple[str, int], ...] = ()
    # Of the last heads, in order.
    places: list[int] = field(default_factory=list)
    # Of each timeline by first place all that was told of it, in order.
    told: dict[int, dict[int, list[Told]]] = field(default_factory=dict)
    booked: set[int] = field(default_factory=set)
    is_over: bool = False

    def go_on(self, seconds: float) -> list[Difference]:
        """Let heads enter for about so long, one at least; returns what differs. It is over when none is left.

        Every look at the database must see the same state of it: what the timelines remember is compared at the end.
        """
        until = time.monotonic() + seconds
        timelines = {key_of(one): one for one in timelines_of(self.row).defer("watch").order_by("pk")}
        for one in timelines.values():
            self.watches.setdefault(str(one.pk), new_watch(one))
        heads = self.row.heads.filter(observed_as__gt=self.reached).select_related("trial").order_by("observed_as")
        found: list[Difference] = []
        for head in heads.iterator(chunk_size=100):
            found += self._enter(head, timelines)
            if time.monotonic() >= until:
                return found
        self.is_over = True
        return [*found, *self._at_the_end()]

    def rest(self) -> dict[str, Any]:
        """Plain lists, numbers and strings, for JSON; `taken_up` reads it."""
        return {
            "reached": self.reached,
            "watches": [watch.as_dict() for watch in self.watches.values()],
            "events": [list(event) for event in self.events],
            "places": self.places,
            "told": [asdict(one) for steps in self.told.values() for told in steps.values() for one in told],
            "booked": sorted(self.booked),
        }

    @classmethod
    def taken_up(cls, row: FleetState, rest: Mapping[str, Any]) -> Self:
        replay = cls(row, rest["reached"], places=rest["places"], booked=set(rest["booked"]))
        replay.watches = {one["name"]: watch_from_dict(one) for one in rest["watches"]}
        replay.events = tuple((machine, place) for machine, place in rest["events"])
        replay._note([Told(**one) for one in rest["told"]])
        return replay

    def _enter(self, head: MeasuredHead, timelines: Mapping[Key, Timeline]) -> Iterator[Difference]:
        comparisons, _ = ratios_of(head.trial, virtual_too=self.row.virtual)
        values = {}
        for comparison in comparisons:
            timeline = timelines.get(key_of(comparison))
            if timeline is None:
                yield Difference(f"{self.row}", f"place {head.place}", "timeline", "missing", "there")
            elif comparison.ratio is not None:
                values[str(timeline.pk)] = comparison.ratio
        yield from _point_differences(head, values)
        self._take(head.place, values)
        assert head.observed_as is not None
        self.reached = head.observed_as

    def _take(self, place: int, values: dict[str, float]) -> None:
        awake = awake_from(self.places)
        names = [name for name, watch in self.watches.items() if name in values or _is_awake(watch, awake)]
        fleet = FleetWatch({name: self.watches[name] for name in names}, self.events)
        looked = look(fleet, place, values, late=bool(self.places) and place < self.places[-1])
        self.watches |= looked.fleet.watches
        self.events = looked.fleet.events
        self.places = sorted([*self.places, place])[-WINDOW:]
        self._note(looked.told)
        self.booked |= {int(name) for event in looked.events for name in event.shifts}

    def _note(self, told: Iterable[Told]) -> None:
        for one in told:
            self.told.setdefault(int(one.timeline), {}).setdefault(one.first_place, []).append(one)

    def _at_the_end(self) -> Iterator[Difference]:
        self.row.refresh_from_db(fields=["events"])
        events = [list(event) for event in self.events]
        if events != self.row.events:
            yield Difference(f"{self.row}", "all timelines", "events", f"{self.row.events}", f"{events}")
        for timeline in timelines_of(self.row).order_by("pk"):
            yield from _watch_differences(timeline, self.watches[str(timeline.pk)])
            yield from self._change_point_differences(timeline)

    def _change_point_differences(self, timeline: Timeline) -> Iterator[Difference]:
        """One that belongs to a finding was decided by fresh boots: it may stand where the timeline says otherwise."""
        stored = {point.first_place: point for point in ChangePoint.objects.filter(timeline=timeline)}
        fresh = self.told.get(timeline.pk, {})
        for place in sorted(stored.keys() | fresh.keys()):
            subject, what = f"timeline {timeline.pk}", f"change point at place {place}"
            point, told = stored.get(place), fresh.get(place, [])
            if point is None or not told:
                presence = ("missing", "there") if point is None else ("there", "missing")
                yield Difference(subject, what, "change point", *presence)
                continue
            shown = [(one.place, one.before_place, one.effect, one.score) for one in told]
            known = [point.place, point.before_place, point.effect, point.score]
            if not any(_alike(known, list(one)) for one in shown):
                yield Difference(subject, what, "place and effect", f"{point.place} {point.effect}", f"{shown[-1]}")
            expected = {told[-1].state} | ({str(ChangePoint.State.MACHINE)} if timeline.pk in self.booked else set())
            if point.finding_id is None and point.state not in expected:
                yield Difference(subject, what, "state", point.state, " or ".join(sorted(expected)))


def _is_awake(watch: Watch, since: int) -> bool:
    return bool(watch.revisions) and watch.revisions[-1] >= since


def _point_differences(head: MeasuredHead, values: dict[str, float]) -> Iterator[Difference]:
    stored = dict(TimelinePoint.objects.filter(head=head).values_list("timeline_id", "ratio"))
    for timeline in sorted(stored.keys() | {int(name) for name in values}):
        before, now = stored.get(timeline), values.get(str(timeline))
        if before is None or now is None or not math.isclose(before, now, rel_tol=TOLERANCE):
            yield Difference(f"timeline {timeline}", f"point at place {head.place}", "ratio", f"{before}", f"{now}")


def _watch_differences(timeline: Timeline, fresh: Watch) -> Iterator[Difference]:
    now = fresh.as_dict()
    for name in sorted(now.keys() | timeline.watch.keys()):
        before = timeline.watch.get(name)
        if not _alike(before, now.get(name)):
            yield Difference(f"timeline {timeline.pk}", "watch", name, f"{before}", f"{now.get(name)}")


def _alike(before: object, now: object) -> bool:
    """Equal but for the last digits of numbers."""
    if isinstance(before, float) and isinstance(now, float):
        return math.isclose(before, now, rel_tol=TOLERANCE)
    if isinstance(before, list) and isinstance(now, list):
        return len(before) == len(now) and all(map(_alike, before, now))
    if isinstance(before, dict) and isinstance(now, dict):
        return before.keys() == now.keys() and all(_alike(before[key], now[key]) for key in before)
    return before == now

"""Whether timelines and their change points are still what the stored comparisons say."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from server.detection.heads.evidence import ratios_of
from server.detection.heads.fleets import Key, awake_from, key_of, new_watch, timelines_of
from server.detection.heads.watching import Looked, Told, look
from server.detection.models import ChangePoint, FleetState, MeasuredHead, Timeline, TimelinePoint
from server.detection.recomputing import Difference
from server.sources.models import Branch
from server.stats.fleet_watch import FleetWatch
from server.stats.watch_state import Watch

# Another version of the numeric libraries may change the last digits, never more.
_TOLERANCE = 1e-9


@dataclass
class _Replay:
    """A fleet as it is made anew, head by head in the order in which they entered."""

    row: FleetState
    timelines: dict[Key, Timeline]
    watches: dict[str, Watch]
    events: tuple[tuple[str, int], ...] = ()
    places: list[int] = field(default_factory=list)
    # Of each timeline and first place all that was told of it, in order.
    told: dict[tuple[int, int], list[Told]] = field(default_factory=dict)
    booked: set[int] = field(default_factory=set)

    def take(self, place: int, values: dict[str, float]) -> None:
        awake = awake_from(self.places)
        names = [name for name, watch in self.watches.items() if name in values or self._is_awake(watch, awake)]
        fleet = FleetWatch({name: self.watches[name] for name in names}, self.events)
        looked = look(fleet, place, values, late=bool(self.places) and place < max(self.places))
        self.watches |= looked.fleet.watches
        self.events = looked.fleet.events
        self.places.append(place)
        self._note(looked)

    @staticmethod
    def _is_awake(watch: Watch, since: int) -> bool:
        return bool(watch.revisions) and watch.revisions[-1] >= since

    def _note(self, looked: Looked) -> None:
        for told in looked.told:
            self.told.setdefault((int(told.timeline), told.first_place), []).append(told)
        self.booked |= {int(name) for event in looked.events for name in event.shifts}


def differences(branch: Branch | None = None) -> Iterator[Difference]:
    """Points, watches and change points, of one branch or of all, that no longer follow from the comparisons.

    Takes as long as the whole history took, without its queries.
    """
    fleets = FleetState.objects.select_related("branch__tree").order_by("pk")
    for row in fleets.filter(branch=branch) if branch else fleets:
        yield from _fleet_differences(row)


def _fleet_differences(row: FleetState) -> Iterator[Difference]:
    timelines = {key_of(timeline): timeline for timeline in timelines_of(row).order_by("pk")}
    replay = _Replay(row, timelines, {str(one.pk): new_watch(one) for one in timelines.values()})
    for head in row.heads.select_related("trial").order_by("observed_as"):
        comparisons, _ = ratios_of(head.trial, virtual_too=row.virtual)
        values = {}
        for comparison in comparisons:
            timeline = timelines.get(key_of(comparison))
            if timeline is None:
                yield Difference(f"{row}", f"place {head.place}", "timeline", "missing", "there")
            elif comparison.ratio is not None:
                values[str(timeline.pk)] = comparison.ratio
        yield from _point_differences(head, values)
        replay.take(head.place, values)
    events = [list(event) for event in replay.events]
    if events != row.events:
        yield Difference(f"{row}", "all timelines", "events", f"{row.events}", f"{events}")
    for timeline in timelines.values():
        yield from _watch_differences(timeline, replay.watches[str(timeline.pk)])
        yield from _change_point_differences(timeline, replay)


def _point_differences(head: MeasuredHead, values: dict[str, float]) -> Iterator[Difference]:
    stored = dict(TimelinePoint.objects.filter(head=head).values_list("timeline_id", "ratio"))
    for timeline in sorted(stored.keys() | {int(name) for name in values}):
        before, now = stored.get(timeline), values.get(str(timeline))
        if before is None or now is None or not math.isclose(before, now, rel_tol=_TOLERANCE):
            yield Difference(f"timeline {timeline}", f"point at place {head.place}", "ratio", f"{before}", f"{now}")


def _watch_differences(timeline: Timeline, fresh: Watch) -> Iterator[Difference]:
    now = fresh.as_dict()
    for name in sorted(now.keys() | timeline.watch.keys()):
        before = timeline.watch.get(name)
        if not _alike(before, now.get(name)):
            yield Difference(f"timeline {timeline.pk}", "watch", name, f"{before}", f"{now.get(name)}")


def _change_point_differences(timeline: Timeline, replay: _Replay) -> Iterator[Difference]:
    """One that belongs to a finding was decided by fresh boots: it may stand where the timeline says otherwise."""
    stored = {point.first_place: point for point in ChangePoint.objects.filter(timeline=timeline)}
    fresh = {place: told for (pk, place), told in replay.told.items() if pk == timeline.pk}
    for place in sorted(stored.keys() | fresh.keys()):
        subject, what = f"timeline {timeline.pk}", f"change point at place {place}"
        point, told = stored.get(place), fresh.get(place, [])
        if point is None or not told:
            presence = ("missing", "there") if point is None else ("there", "missing")
            yield Difference(subject, what, "change point", *presence)
            continue
        shown = [(one.place, one.before_place, one.effect, one.score) for one in told]
        if not any(_alike([point.place, point.before_place, point.effect, point.score], list(one)) for one in shown):
            yield Difference(subject, what, "place and effect", f"{point.place} {point.effect}", f"{shown[-1]}")
        expected = {told[-1].state} if timeline.pk not in replay.booked else {told[-1].state, ChangePoint.State.MACHINE}
        if point.finding_id is None and point.state not in expected:
            yield Difference(subject, what, "state", point.state, " or ".join(sorted(expected)))


def _alike(before: object, now: object) -> bool:
    """Equal but for the last digits of numbers."""
    if isinstance(before, float) and isinstance(now, float):
        return math.isclose(before, now, rel_tol=_TOLERANCE)
    if isinstance(before, list) and isinstance(now, list):
        return len(before) == len(now) and all(map(_alike, before, now))
    if isinstance(before, dict) and isinstance(now, dict):
        return before.keys() == now.keys() and all(_alike(before[key], now[key]) for key in before)
    return before == now

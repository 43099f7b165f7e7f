"""One head of a branch enters the watch over all of its timelines. No database in here: a replay does the same."""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace

from server.stats.events import MachineEvent
from server.stats.fleet_watch import FleetWatch, observe_fleet
from server.stats.late import inserted
from server.stats.watch import News
from server.stats.watch_state import Point, Watch


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


def _told(name: str, news: News, before: Watch, after: Watch) -> Told:
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

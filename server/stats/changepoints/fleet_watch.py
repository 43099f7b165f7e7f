"""A whole fleet watched as revisions are measured: steps of the code and events of machines are each published once."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from server.stats.changepoints import nominations
from server.stats.changepoints.events import MachineEvent
from server.stats.changepoints.fleet import Nominate, resolve
from server.stats.changepoints.steps import Step
from server.stats.changepoints.watch import (
    KNOWN_POINTS,
    NEAR,
    SETTLED_POINTS,
    Point,
    Watch,
    WatchNews,
    extended,
    judged,
    sure,
)

# An event is one only when the other machines have had so many points to show that it was the code.
SHOWING_POINTS = 4


@dataclass(frozen=True)
class FleetWatch:
    """The watches by the name of their timeline; machine and revision of the events published among their points."""

    watches: Mapping[str, Watch]
    events: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class FleetNews:
    """What became known with a revision: of each timeline that has news, and of machines."""

    timelines: Mapping[str, tuple[WatchNews, ...]]
    events: tuple[MachineEvent, ...]


def observe_fleet(
    fleet: FleetWatch, revision: int, values: Mapping[str, float], *, nominate: Nominate = nominations.nominate
) -> tuple[FleetWatch, FleetNews]:
    """The watch after the values of one revision (by the timeline's name), and what is new.

    A suspect that turns out to be an event of its machine is withdrawn when it would have been settled. An event waits
    for the machines that lag behind, but not for ever: what was the code after all stays an event then. One revision
    costs a look at the whole fleet, its last points of all timelines (`fleet.resolve`). Raises
    KeyError for a timeline that is not watched, ValueError for a revision that is not a later one.
    """
    unknown = sorted(values.keys() - fleet.watches.keys())
    if unknown:
        raise KeyError(f"timeline {unknown[0]} is not watched")
    watches = dict(fleet.watches)
    for name, value in values.items():
        watches[name] = extended(watches[name], Point(revision, value))
    looked = resolve([watch.timeline() for watch in watches.values()], nominate=nominate)
    found = dict(zip(watches, looked.steps, strict=True))
    leading = _leading(watches, found)
    news = {}
    for name in sorted(values):
        steps = found[name]
        certain = [s for s in steps if sure(watches[name], s) or (watches[name].benchmark, s.revision) in leading]
        watches[name], some = judged(watches[name], steps, certain)
        if some:
            news[name] = some
    events = [event for event in looked.events if _is_due(watches, event) and _is_new(watches, fleet.events, event)]
    known = [*fleet.events, *((event.machine, event.revision) for event in events)]
    return (
        FleetWatch(watches, tuple(one for one in known if one[1] >= _first_revision(watches, one[0]))),
        FleetNews(news, tuple(events)),
    )


def _leading(watches: Mapping[str, Watch], found: Mapping[str, Sequence[Step]]) -> set[tuple[str, int]]:
    """Benchmarks and revisions where some machine is sure enough; the others of the benchmark may follow it."""
    return {
        (watches[name].benchmark, step.revision)
        for name, steps in found.items()
        for step in steps
        if watches[name].benchmark and sure(watches[name], step)
    }


def _is_due(watches: Mapping[str, Watch], event: MachineEvent) -> bool:
    """Whether its machine is known before the event, and the others have been measured after it, or long could be."""
    before, since = Counter[str](), Counter[str]()
    for watch in watches.values():
        at = bisect_left(watch.revisions, event.revision)
        before[watch.machine] = max(before[watch.machine], at)
        since[watch.machine] = max(since[watch.machine], len(watch.revisions) - at)
    others = [points for machine, points in since.items() if machine not in ("", event.machine)]
    shown = min(others, default=SHOWING_POINTS) >= SHOWING_POINTS
    return before[event.machine] >= KNOWN_POINTS and (shown or since[event.machine] >= SETTLED_POINTS)


def _is_new(watches: Mapping[str, Watch], known: Sequence[tuple[str, int]], event: MachineEvent) -> bool:
    """Whether it is no known event of the machine, by the number of revisions that anybody measured between them."""
    measured = sorted({revision for watch in watches.values() for revision in watch.revisions})
    place = bisect_left(measured, event.revision)
    return all(machine != event.machine or abs(bisect_left(measured, at) - place) >= NEAR for machine, at in known)


def _first_revision(watches: Mapping[str, Watch], machine: str) -> int:
    """The first revision that is still looked at on the machine: an earlier event cannot be found again."""
    return min((w.revisions[0] for w in watches.values() if w.machine == machine and w.revisions), default=0)

"""A whole fleet watched as revisions are measured: steps of the code and events of machines are each published once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from server.stats import changepoints
from server.stats.events import MachineEvent
from server.stats.fleet import resolve
from server.stats.resolution import Nominate
from server.stats.steps import Step
from server.stats.watch import NEAR, News, judged, sure
from server.stats.watch_state import Point, Watch, extended


@dataclass(frozen=True)
class FleetWatch:
    """The watches by the name of their timeline; machine and revision of the events published among their points."""

    watches: Mapping[str, Watch]
    events: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class FleetNews:
    """What became known with a revision: of each timeline that has news, and of machines."""

    timelines: Mapping[str, tuple[News, ...]]
    events: tuple[MachineEvent, ...]


def observe_fleet(
    fleet: FleetWatch, revision: int, values: Mapping[str, float], *, nominate: Nominate = changepoints.nominate
) -> tuple[FleetWatch, FleetNews]:
    """The watch after the values of one revision (by the timeline's name), and what is new.

    A suspect that turns out to be an event of its machine is withdrawn when it would have been settled. Raises
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
        certain = [s for s in steps if sure(s) or (watches[name].benchmark, s.revision) in leading]
        watches[name], some = judged(watches[name], steps, certain)
        if some:
            news[name] = some
    events = [event for event in looked.events if _is_new(fleet.events, event)]
    first = min((watch.revisions[0] for watch in watches.values() if watch.revisions), default=revision)
    known = [*fleet.events, *((event.machine, event.revision) for event in events)]
    return (
        FleetWatch(watches, tuple(one for one in known if one[1] >= first - NEAR)),
        FleetNews(news, tuple(events)),
    )


def _leading(watches: Mapping[str, Watch], found: Mapping[str, Sequence[Step]]) -> set[tuple[str, int]]:
    """Benchmarks and revisions where some machine is sure enough; the others of the benchmark may follow it."""
    return {
        (watches[name].benchmark, step.revision)
        for name, steps in found.items()
        for step in steps
        if watches[name].benchmark and sure(step)
    }


def _is_new(known: Sequence[tuple[str, int]], event: MachineEvent) -> bool:
    return all(machine != event.machine or abs(at - event.revision) > NEAR for machine, at in known)

"""Timelines watched as their points come in, one by one or those of a whole fleet: each step is published once and then
stays where it is.
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from itertools import pairwise
from operator import index
from typing import Any, Literal, cast

import numpy as np

from server.stats.changepoints import nominations
from server.stats.changepoints.causes import MachineEvent
from server.stats.changepoints.fleet import Nominate, resolve
from server.stats.changepoints.steps import STRICT, Step
from server.stats.changepoints.timeline import TimelineValues

# The last points are looked at: enough for the noise and two levels, few enough to be fast.
WINDOW = 120


class StepState(StrEnum):
    SUSPECT = "suspect"
    SETTLED = "settled"
    WITHDRAWN = "withdrawn"


@dataclass(frozen=True)
class Point:
    """A new value of the timeline. A value that is not finite counts as a point without a result."""

    revision: int
    value: float


@dataclass(frozen=True)
class Published:
    """A step as it stands.

    `index` and `revision` are the first of the new regime, `effect` is the log ratio after/before (where values
    have no logarithm, the difference in units of the usual value among the last points), `reported` is how many points
    there were when it was first published.
    """

    index: int
    revision: int
    effect: float
    score: float
    reported: int
    state: StepState


@dataclass(frozen=True)
class Watch:
    """The last points of a timeline that have a value, and what was published among them.

    `seen` counts all points. `indices`, `revisions` and `values` (up to WINDOW) are those of the last points.
    """

    name: str
    machine: str = ""
    benchmark: str = ""
    better: Literal["lower", "higher", ""] = ""
    seen: int = 0
    indices: tuple[int, ...] = ()
    revisions: tuple[int, ...] = ()
    values: tuple[float, ...] = ()
    published: tuple[Published, ...] = ()

    def timeline(self) -> TimelineValues:
        """The last points as a timeline of their own; its indices count from the first of them."""
        return TimelineValues(
            name=self.name,
            values=np.array(self.values, dtype=np.float64),
            revisions=np.array(self.revisions, dtype=np.int64),
            machine=self.machine,
            benchmark=self.benchmark,
            better=self.better,
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain lists, numbers and strings, for JSON; `watch_from_dict` reads it."""
        plain = asdict(self)
        for name in ("indices", "revisions", "values", "published"):
            plain[name] = list(plain[name])
        plain["published"] = [{**one, "state": str(one["state"])} for one in plain["published"]]
        return plain


def watch_from_dict(stored: Mapping[str, Any]) -> Watch:
    """The watch as `as_dict` wrote it. Raises ValueError naming the timeline when it is something else."""
    name = stored.get("name")
    try:
        watch = _read(stored)
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise ValueError(f"timeline {name}: not a stored watch: {error!r}") from error
    if not len(watch.indices) == len(watch.revisions) == len(watch.values) <= WINDOW:
        raise ValueError(f"timeline {name}: the stored points do not fit together")
    orderly = _increase(watch.indices) and _increase(watch.revisions) and all(map(math.isfinite, watch.values))
    if not orderly or (watch.indices and not 0 <= watch.indices[0] <= watch.indices[-1] < watch.seen):
        raise ValueError(f"timeline {name}: the stored points are not in order")
    if any(one.index not in watch.indices for one in watch.published):
        raise ValueError(f"timeline {name}: a stored step is at none of the points")
    return watch


def _read(stored: Mapping[str, Any]) -> Watch:
    names = {key: stored[key] for key in ("name", "machine", "benchmark", "better")}
    if not all(isinstance(one, str) for one in names.values()):
        raise TypeError("names must be text")
    if names["better"] not in ("lower", "higher", ""):
        raise ValueError(f"better is {names['better']!r}, neither lower nor higher")
    return Watch(
        name=names["name"],
        machine=names["machine"],
        benchmark=names["benchmark"],
        better=cast("Literal['lower', 'higher', '']", names["better"]),
        seen=index(stored["seen"]),
        indices=tuple(index(one) for one in stored["indices"]),
        revisions=tuple(index(one) for one in stored["revisions"]),
        values=tuple(float(one) for one in stored["values"]),
        published=tuple(_published(one) for one in stored["published"]),
    )


def _published(stored: Mapping[str, Any]) -> Published:
    return Published(
        index=index(stored["index"]),
        revision=index(stored["revision"]),
        effect=float(stored["effect"]),
        score=float(stored["score"]),
        reported=index(stored["reported"]),
        state=StepState(stored["state"]),
    )


def _increase(numbers: Sequence[int]) -> bool:
    return all(before < after for before, after in pairwise(numbers))


def extended(watch: Watch, point: Point) -> Watch:
    """The watch with one more point, before anything is judged. Raises ValueError when its revision is no later one."""
    if watch.revisions and point.revision <= watch.revisions[-1]:
        raise ValueError(f"timeline {watch.name}: revision {point.revision} does not follow {watch.revisions[-1]}")
    if not math.isfinite(point.value):
        return replace(watch, seen=watch.seen + 1)
    indices = (*watch.indices, watch.seen)[-WINDOW:]
    return replace(
        watch,
        seen=watch.seen + 1,
        indices=indices,
        revisions=(*watch.revisions, point.revision)[-WINDOW:],
        values=(*watch.values, point.value)[-WINDOW:],
        published=tuple(p for p in watch.published if p.index >= indices[0]),
    )


def inserted(watch: Watch, point: Point) -> Watch:
    """The watch with a point at its place among the last ones, whatever came after it. Nothing is judged.

    Points behind it are counted one further, and so are published steps; a step that was published is not asked again
    because of it. A value that is not finite, or from before the points that are remembered, only counts. Costs as
    much as a new point. Raises ValueError for a revision that has a point already.
    """
    if not watch.revisions or point.revision > watch.revisions[-1]:
        return extended(watch, point)
    at = bisect_left(watch.revisions, point.revision)
    if watch.revisions[at] == point.revision:
        raise ValueError(f"timeline {watch.name}: revision {point.revision} has a point already")
    index = watch.indices[at]
    indices = [*watch.indices[:at], *(one + 1 for one in watch.indices[at:])]
    revisions, values = list(watch.revisions), list(watch.values)
    forgotten = at == 0 and len(values) >= WINDOW
    if math.isfinite(point.value) and not forgotten:
        indices.insert(at, index)
        revisions.insert(at, point.revision)
        values.insert(at, point.value)
    indices = indices[-WINDOW:]
    return replace(
        watch,
        seen=watch.seen + 1,
        indices=tuple(indices),
        revisions=tuple(revisions[-WINDOW:]),
        values=tuple(values[-WINDOW:]),
        published=tuple(
            moved
            for one in watch.published
            if (moved := one if one.index < index else replace(one, index=one.index + 1)).index >= indices[0]
        ),
    )


# One timeline watched as its points come in: each step is published once and then stays where it is.
#
# Detectors that look again at every new point see chance steps come and go, and report each of them. A watch
# publishes a step as a *suspect* when it is first sure, and decides once more when enough points have come: it is
# *settled* for good, at the place that looks best then, or *withdrawn*. Neither is published again. A new point costs
# one look at the last points (WINDOW), however long the history is.

# From this many points after the step its level is known, and the step is settled or withdrawn.
SETTLED_POINTS = 12
# A suspect that was found late is settled or withdrawn after so many more points: one look is not enough.
CONFIRMING_POINTS = 4
# A level is known from so many points before a step; until then nothing is reported.
KNOWN_POINTS = 12
# What did not show in this many points will not be reported any more: each look at an old place only adds false alarms.
LATEST = 40
# A place is looked at with each new point, from the fourth after it to the fortieth: as if by so many independent looks
# (Siegmund, Sequential Analysis, 1985, 4.40, at p = 2e-4).
LOOKS = 10
# Score (-log10 p) for being published: the error of a place is spent over all looks at it.
SURE = STRICT + math.log10(LOOKS)
# A suspect is settled with this score: it has been sure once already.
STAYING = 2.0
# Two steps of one direction nearer than so many points are one step, seen twice.
NEAR = 5


@dataclass(frozen=True)
class WatchNews:
    """What became known with a point. `was` is the index under which a step was published that has moved since."""

    published: Published
    was: int | None = None


def observe(
    watch: Watch, point: Point, *, nominate: Nominate = nominations.nominate
) -> tuple[Watch, tuple[WatchNews, ...]]:
    """The watch after the point, and what is new. Raises ValueError for a revision that is not a later one."""
    watch = extended(watch, point)
    if not watch.indices or watch.indices[-1] != watch.seen - 1:
        return watch, ()
    steps = nominate([watch.timeline()], threshold=STAYING)[0]
    return judged(watch, steps, [step for step in steps if step.score >= SURE])


def judged(watch: Watch, steps: Sequence[Step], certain: Sequence[Step]) -> tuple[Watch, tuple[WatchNews, ...]]:
    """Settle what is due and publish what is new.

    `steps` are all that were found among the last points, weak ones as well, with indices into these points; `certain`
    are those that may be published.
    """
    now = [_decided(watch, one, steps) for one in watch.published]
    news = [
        WatchNews(after, before.index if after.index != before.index else None)
        for before, after in zip(watch.published, now, strict=True)
        if after.state != before.state
    ]
    fresh = [_first(watch, step) for step in certain if _in_time(watch, step) and not _known(watch, step, now)]
    published = tuple(sorted([*now, *fresh], key=lambda one: one.index))
    return replace(watch, published=published), (*news, *(WatchNews(one) for one in fresh))


def _points_since(watch: Watch, place: int) -> int:
    return len(watch.values) - place


def _in_time(watch: Watch, step: Step) -> bool:
    return step.index >= KNOWN_POINTS and _points_since(watch, step.index) <= LATEST


def _first(watch: Watch, step: Step) -> Published:
    return Published(watch.indices[step.index], step.revision, step.effect, step.score, watch.seen, StepState.SUSPECT)


def _decided(watch: Watch, published: Published, steps: Sequence[Step]) -> Published:
    """What has become of a published step: only a suspect that is old enough changes."""
    place = watch.indices.index(published.index)
    known = _points_since(watch, place) >= SETTLED_POINTS and watch.seen >= published.reported + CONFIRMING_POINTS
    if published.state != StepState.SUSPECT or not known:
        return published
    same = [s for s in steps if abs(s.index - place) < NEAR and (s.effect > 0) == (published.effect > 0)]
    if not same:
        return replace(published, state=StepState.WITHDRAWN)
    best = min(same, key=lambda s: (abs(s.index - place), s.index))
    return replace(
        published,
        index=watch.indices[best.index],
        revision=best.revision,
        effect=best.effect,
        score=best.score,
        state=StepState.SETTLED,
    )


def _known(watch: Watch, step: Step, published: Iterable[Published]) -> bool:
    places = [(watch.indices.index(one.index), one.effect > 0) for one in published]
    return any(abs(place - step.index) < NEAR and up == (step.effect > 0) for place, up in places)


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
        certain = [s for s in steps if s.score >= SURE or (watches[name].benchmark, s.revision) in leading]
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
        if watches[name].benchmark and step.score >= SURE
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

"""Change points of a fleet: place after place, the strongest first, is told to be a machine's or the code's."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from server.stats.changepoints import nominations
from server.stats.changepoints.causes import (
    MachineEvent,
    Move,
    PlaceExplanation,
    belongs,
    book,
    doubted,
    explain_place,
    vote,
    without,
)
from server.stats.changepoints.shifts import CLEAR, Shift, Trace, shift_at, trace
from server.stats.changepoints.steps import STRICT, WEAK, Step
from server.stats.changepoints.timeline import TimelineValues

# Steps this many revisions apart may be one change: small changes are placed with an error of a few revisions.
CLOSE = 3


@dataclass(frozen=True)
class Nomination:
    """A step of one timeline before anything is decided.

    It happened after the last revision that was measured before it: from `since` to `revision`.
    """

    timeline: int
    revision: int
    since: int
    score: float

    def near(self, other: "Nomination") -> bool:
        return max(other.since - self.revision, self.since - other.revision) <= CLOSE


def strongest_first(nominations: Iterable[Nomination]) -> list[Nomination]:
    return sorted(nominations, key=lambda n: (-n.score, n.revision, n.timeline))


def cluster(head: Nomination, nominations: Iterable[Nomination]) -> list[Nomination]:
    """The head and what may be the same change, of each timeline the first; the head comes first."""
    members = {head.timeline: head}
    for nomination in nominations:
        if nomination.near(head):
            members.setdefault(nomination.timeline, nomination)
    return list(members.values())


def first_guess(members: list[Nomination]) -> int:
    """Where to look first: at the head, unless that machine did not measure for a while and another one did."""
    head = members[0]
    inside = [n.revision for n in members if head.since <= n.revision < head.revision]
    return inside[0] if inside else head.revision


# Score (-log10 p) that makes a step of one timeline worth a question to the fleet; alone it is not enough.
LENIENT = 2.5
# A false place of a fleet costs boots on all of its machines: one fleet in 100 without a change errs, not one in 20.
DEARER = math.log10(5)
# Weak steps of one benchmark at one place add up over machines; each but the first pays so much for the coincidence.
COINCIDENCE = 1.3
# A shift of fewer standard errors than this is not worth taking out of a timeline and looking again.
HARDLY = 1.0
# With fewer timelines than this at a place there is nothing to explain.
FEWEST_TIMELINES = 2


class Nominate(Protocol):
    """The detector of single timelines, see `changepoints.nominate`."""

    def __call__(self, timelines: Sequence[TimelineValues], *, threshold: float) -> list[list[Step]]: ...


class Resolution:
    """The state of the work on one fleet: what is still nominated, and what has been decided."""

    def __init__(self, timelines: Sequence[TimelineValues], nominate: Nominate) -> None:
        self.steps: list[dict[int, Step]] = [{} for _ in timelines]
        self.events: list[MachineEvent] = []
        self._nominate = nominate
        nominated = nominate(timelines, threshold=LENIENT)
        self._traces = [_trace(timeline, steps) for timeline, steps in zip(timelines, nominated, strict=True)]
        self._open = [_nominations(i, traced, nominated[i]) for i, traced in enumerate(self._traces)]
        # Revisions near which a timeline has been decided upon, and their places in it.
        self._decided: list[list[tuple[int, int]]] = [[] for _ in timelines]
        # Each timeline is one more chance to be wrong (Bonferroni).
        self._sure = STRICT + DEARER + math.log10(max(1, sum(bool(timeline.machine) for timeline in timelines)))

    def run(self) -> None:
        while members := self._next_place():
            revision = vote([self._traces[n.timeline] for n in members], first_guess(members))
            shifts = self._shifts(revision)
            explanation = self._explain(shifts, revision)
            if not self._book_events(explanation, members, shifts, revision):
                self._accept(explanation, members, shifts, revision)

    def _next_place(self) -> list[Nomination]:
        """The strongest nomination that can stand, with those that may be the same change; empty when none is left."""
        ranked = strongest_first(n for own in self._open for n in own)
        strong = next((n for n in ranked if n.score >= self._level(n)), None)
        if strong:
            return cluster(strong, ranked)
        alike: dict[str, list[Nomination]] = {}
        for nomination in ranked:
            alike.setdefault(self._benchmark(nomination), []).append(nomination)
        weak = (head for head in ranked if self._weak_but_many(cluster(head, alike[self._benchmark(head)])))
        head = next(weak, None)
        return cluster(head, ranked) if head else []

    def _weak_but_many(self, members: Sequence[Nomination]) -> bool:
        benchmark = self._benchmark(members[0])
        same = [n.score for n in members if self._benchmark(n) == benchmark]
        return (
            bool(benchmark) and len(same) > 1 and sum(same) - COINCIDENCE * (len(same) - 1) >= self._level(members[0])
        )

    def _level(self, head: Nomination) -> float:
        """The score from which a place stands; timelines of no machine are judged each on its own."""
        return self._sure if self._traces[head.timeline].timeline.machine else STRICT

    def _benchmark(self, nomination: Nomination) -> str:
        return self._traces[nomination.timeline].timeline.benchmark

    def _shifts(self, revision: int) -> dict[int, Shift]:
        """What every timeline does at the place that was measured there and has not been decided upon near it."""
        free = [i for i in range(len(self._traces)) if not self._is_decided(i, revision)]
        found = {i: shift_at(self._traces[i], revision) for i in free}
        return {i: shift for i, shift in found.items() if shift.points > 0}

    def _explain(self, shifts: dict[int, Shift], revision: int) -> PlaceExplanation | None:
        moves = [
            Move(
                machine=timeline.machine,
                benchmark=timeline.benchmark or timeline.name,
                effect=shift.effect,
                error=shift.error,
                direction=-1.0 if timeline.better == "lower" else 1.0,
            )
            for i, shift in shifts.items()
            if (timeline := self._traces[i].timeline).machine
        ]
        if len(moves) < FEWEST_TIMELINES:
            return None
        explanation = explain_place(moves)
        machines: dict[str, dict[str, Shift]] = {}
        traces: dict[str, list[Trace]] = {}
        for i, shift in shifts.items():
            timeline = self._traces[i].timeline
            machines.setdefault(timeline.machine, {})[timeline.benchmark or timeline.name] = shift
            traces.setdefault(timeline.machine, []).append(self._traces[i])
        places = {machine: vote(traces[machine], revision) for machine, odds in explanation.events.items() if odds > 0}
        return doubted(explanation, machines, places)

    def _book_events(
        self,
        explanation: PlaceExplanation | None,
        members: Sequence[Nomination],
        shifts: dict[int, Shift],
        revision: int,
    ) -> bool:
        """Take the events of machines out of their timelines; whether there was any."""
        if explanation is None:
            return False
        nominated = {self._traces[n.timeline].timeline.machine for n in members}
        changed = self._changed(explanation, shifts)
        booked = False
        for machine, odds in explanation.events.items():
            own = [i for i in shifts if self._traces[i].timeline.machine == machine]
            if odds > 0 and machine in nominated and len(own) >= FEWEST_TIMELINES:
                event = book(machine, odds, [self._traces[i] for i in own], revision, changed)
                self._book(event, own, revision)
                booked = booked or bool(event.shifts)
        return booked

    def _changed(self, explanation: PlaceExplanation, shifts: dict[int, Shift]) -> dict[str, float]:
        """By how much the code moved each benchmark, where the place is a change of the code as well."""
        effects: dict[str, list[float]] = {}
        for i, shift in shifts.items():
            timeline = self._traces[i].timeline
            if timeline.machine in explanation.machines and timeline.benchmark in explanation.benchmarks:
                effects.setdefault(timeline.benchmark, []).append(shift.effect)
        return {benchmark: statistics.median(own) for benchmark, own in effects.items()}

    def _book(self, event: MachineEvent, own: Sequence[int], revision: int) -> None:
        if not event.shifts:
            return
        self.events.append(event)
        for i in own:
            timeline = self._traces[i].timeline
            if timeline.name not in event.shifts:
                continue
            if abs(shift_at(self._traces[i], event.revision).z) > HARDLY:
                level = without(timeline, event.revision, event.shifts[timeline.name])
                steps = self._nominate([level], threshold=LENIENT)[0]
                self._traces[i] = _trace(level, steps)
                self._open[i] = _nominations(i, self._traces[i], steps)
            self._decide(i, event.revision, revision)

    def _accept(
        self,
        explanation: PlaceExplanation | None,
        members: Sequence[Nomination],
        shifts: dict[int, Shift],
        revision: int,
    ) -> None:
        """A change of the code: the head, what the best explanation counts to it, and who moves with them."""
        head = members[0]
        sure = {head.timeline} | {n.timeline for n in members if n.score >= STRICT and self._explained(n, explanation)}
        if self._weak_but_many(members):
            sure |= {n.timeline for n in members if self._benchmark(n) == self._benchmark(head)}
        revision = vote([self._traces[i] for i in sorted(sure)], revision)
        for i in sorted(sure | self._followers(sure, shifts, revision)):
            self._publish(i, revision, next((n for n in members if n.timeline == i), None))
        self._open[head.timeline] = [n for n in self._open[head.timeline] if n is not head]

    def _explained(self, nomination: Nomination, explanation: PlaceExplanation | None) -> bool:
        timeline = self._traces[nomination.timeline].timeline
        return explanation is None or (
            timeline.machine in explanation.machines and (timeline.benchmark or timeline.name) in explanation.benchmarks
        )

    def _followers(self, sure: set[int], shifts: dict[int, Shift], revision: int) -> set[int]:
        """Timelines of the same benchmarks that show enough to belong to the change of those that are sure."""
        effects = self._effects(sure, revision)
        benchmarks = {i: self._traces[i].timeline.benchmark for i in shifts.keys() - sure}
        return {
            i
            for i, benchmark in benchmarks.items()
            if benchmark in effects and belongs(shift_at(self._traces[i], revision), effects[benchmark])
        }

    def _effects(self, sure: set[int], revision: int) -> dict[str, float]:
        """By how much each benchmark moved: the median of its sure timelines."""
        effects: dict[str, list[float]] = {}
        for i in sorted(sure):
            if self._traces[i].timeline.benchmark:
                shift = shift_at(self._traces[i], revision)
                effects.setdefault(self._traces[i].timeline.benchmark, []).append(shift.effect)
        return {benchmark: statistics.median(own) for benchmark, own in effects.items()}

    def _publish(self, i: int, revision: int, nominated: Nomination | None) -> None:
        """Publish a step where the vote puts it, or as nominated if that is too near to what has been decided."""
        timeline = self._traces[i].timeline
        if nominated and self._is_decided(i, revision):
            revision = nominated.revision
        index = int(np.searchsorted(timeline.revisions, revision))
        if not 0 < index < len(timeline.values):
            return
        shift = shift_at(self._traces[i], revision)
        self.steps[i][index] = Step(
            index=index,
            revision=int(timeline.revisions[index]),
            effect=shift.effect,
            score=nominated.score if nominated else min(shift.score, WEAK),
            points=shift.points,
        )
        self._decide(i, int(timeline.revisions[index]), revision)

    def _decide(self, i: int, *revisions: int) -> None:
        """What is near a decision is not asked again."""
        self._decided[i] += [(revision, self._traces[i].place(revision)) for revision in revisions]
        self._open[i] = [n for n in self._open[i] if not self._is_decided(i, n.revision)]

    def _is_decided(self, i: int, revision: int) -> bool:
        """Whether the timeline was decided upon so near that it would show the same step once more."""
        if not self._decided[i]:
            return False
        at = self._traces[i].place(revision)
        return any(abs(one - revision) <= CLOSE or abs(place - at) <= CLEAR for one, place in self._decided[i])


def _trace(timeline: TimelineValues, steps: Sequence[Step]) -> Trace:
    return trace(timeline, [step.revision for step in steps if step.score >= STRICT])


def _nominations(i: int, traced: Trace, steps: Sequence[Step]) -> list[Nomination]:
    places = [(step, traced.place(step.revision)) for step in steps]
    return [
        Nomination(
            timeline=i,
            revision=step.revision,
            since=int(traced.revisions[at - 1]) + 1 if at else step.revision,
            score=step.score,
        )
        for step, at in places
    ]


@dataclass(frozen=True)
class Fleet:
    """`steps` are the code steps of each timeline in order of index, aligned with those given; `events` are those of
    machines, in order of revision.
    """

    steps: list[list[Step]]
    events: list[MachineEvent]


def resolve(timelines: Sequence[TimelineValues], *, nominate: Nominate = nominations.nominate) -> Fleet:
    """Tell steps of the code from events of machines, on all timelines that share their revisions.

    Timelines of one machine, and of one benchmark, belong together by those names; a timeline without them is judged
    on its own. Distances are counted in revisions that anybody measured (`nominate` sees their ranks): it does not
    matter whether every commit is measured or every hundredth. Raises ValueError where two timelines of machines have
    one name: events are booked by it.
    """
    names = [t.name for t in timelines if t.machine]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"timeline {twice}: the name is there twice")
    measured = np.unique(np.concatenate([np.empty(0, dtype=np.int64), *(t.revisions for t in timelines)]))
    resolution = Resolution([replace(t, revisions=np.searchsorted(measured, t.revisions)) for t in timelines], nominate)
    resolution.run()
    steps = [
        [replace(own[index], revision=int(measured[own[index].revision])) for index in sorted(own)]
        for own in resolution.steps
    ]
    events = [replace(event, revision=int(measured[event.revision])) for event in resolution.events]
    return Fleet(steps=steps, events=sorted(events, key=lambda e: (e.revision, e.machine)))

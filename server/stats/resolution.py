"""One place after the other, the strongest first, is told to be an event of machines or a change of the code."""

import statistics
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from server.stats.causes import Explanation, Move, explain_place
from server.stats.doubts import doubted
from server.stats.events import MachineEvent, book, without
from server.stats.places import CLOSE, Nomination, cluster, first_guess, strongest_first
from server.stats.shifts import Shift, Trace, shift_at, trace
from server.stats.steps import STRICT, WEAK, Step
from server.stats.support import SAME_BENCHMARK, SAME_REVISION, belongs
from server.stats.timelines import Timeline
from server.stats.votes import vote

# Score (-log10 p) that makes a step of one timeline worth a question to the fleet; alone it is not enough.
LENIENT = 2.0
# Weak steps of one benchmark at one place add up over machines; each but the first pays so much for the coincidence.
COINCIDENCE = 1.3
# A shift of fewer standard errors than this is not worth taking out of a timeline and looking again.
HARDLY = 1.0
# With fewer timelines than this at a place there is nothing to explain.
FEWEST_TIMELINES = 2


class Nominate(Protocol):
    """The detector of single timelines, see `changepoints.nominate`."""

    def __call__(self, timelines: Sequence[Timeline], *, threshold: float) -> list[list[Step]]: ...


class Resolution:
    """The state of the work on one fleet: what is still nominated, and what has been decided."""

    def __init__(self, timelines: Sequence[Timeline], nominate: Nominate) -> None:
        self.steps: list[dict[int, Step]] = [{} for _ in timelines]
        self.events: list[MachineEvent] = []
        self._nominate = nominate
        nominated = nominate(timelines, threshold=LENIENT)
        self._traces = [_trace(timeline, steps) for timeline, steps in zip(timelines, nominated, strict=True)]
        self._open = [_nominations(i, traced, nominated[i]) for i, traced in enumerate(self._traces)]
        # Revisions near which a timeline has been decided upon.
        self._decided: list[list[int]] = [[] for _ in timelines]

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
        if ranked and ranked[0].score >= STRICT:
            return cluster(ranked[0], ranked)
        alike: dict[str, list[Nomination]] = {}
        for nomination in ranked:
            alike.setdefault(self._benchmark(nomination), []).append(nomination)
        weak = (head for head in ranked if self._weak_but_many(cluster(head, alike[self._benchmark(head)])))
        head = next(weak, None)
        return cluster(head, ranked) if head else []

    def _weak_but_many(self, members: Sequence[Nomination]) -> bool:
        benchmark = self._benchmark(members[0])
        same = [n.score for n in members if self._benchmark(n) == benchmark]
        return bool(benchmark) and len(same) > 1 and sum(same) - COINCIDENCE * (len(same) - 1) >= STRICT

    def _benchmark(self, nomination: Nomination) -> str:
        return self._traces[nomination.timeline].timeline.benchmark

    def _shifts(self, revision: int) -> dict[int, Shift]:
        """What every timeline does at the place that was measured there and has not been decided upon near it."""
        free = [i for i, decided in enumerate(self._decided) if all(abs(one - revision) > CLOSE for one in decided)]
        found = {i: shift_at(self._traces[i], revision) for i in free}
        return {i: shift for i, shift in found.items() if shift.points > 0}

    def _explain(self, shifts: dict[int, Shift], revision: int) -> Explanation | None:
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
        explanation: Explanation | None,
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

    def _changed(self, explanation: Explanation, shifts: dict[int, Shift]) -> dict[str, float]:
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
            self._decided[i] += [event.revision, revision]
            self._close(i)

    def _accept(
        self,
        explanation: Explanation | None,
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
        weak = {n.timeline for n in members}
        for i in sorted(sure | self._followers(sure, weak, shifts, revision)):
            self._publish(i, revision, next((n for n in members if n.timeline == i), None))
        self._open[head.timeline] = [n for n in self._open[head.timeline] if n is not head]

    def _explained(self, nomination: Nomination, explanation: Explanation | None) -> bool:
        timeline = self._traces[nomination.timeline].timeline
        return explanation is None or (
            timeline.machine in explanation.machines and (timeline.benchmark or timeline.name) in explanation.benchmarks
        )

    def _followers(self, sure: set[int], weak: set[int], shifts: dict[int, Shift], revision: int) -> set[int]:
        """Timelines that show enough to belong to the change of those that are sure."""
        effects = self._effects(sure, revision)
        followers = set()
        for i in shifts.keys() - sure:
            benchmark = self._traces[i].timeline.benchmark
            shift = shift_at(self._traces[i], revision)
            if benchmark in effects:
                follows = belongs(shift, SAME_BENCHMARK, effects[benchmark])
            else:
                follows = bool(benchmark) and i in weak and belongs(shift, SAME_REVISION)
            if follows:
                followers.add(i)
        return followers

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
        if nominated and any(abs(one - revision) <= CLOSE for one in self._decided[i]):
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
        self._decided[i] += [int(timeline.revisions[index]), revision]
        self._close(i)

    def _close(self, i: int) -> None:
        """What is near a decision is not asked again."""
        self._open[i] = [n for n in self._open[i] if all(abs(n.revision - at) > CLOSE for at in self._decided[i])]


def _trace(timeline: Timeline, steps: Sequence[Step]) -> Trace:
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

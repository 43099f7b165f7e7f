"""The decision: a pure function from a snapshot to what is given out, in the order of urgency, priority and fair
share.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Generic, TypeVar

from server.lab.hosts.state import Health, State
from server.lab.port import WorkKind
from server.lab.scheduling.snapshot import (
    Decision,
    KnownBuilder,
    KnownMachine,
    Snapshot,
    Spent,
    Waiter,
    WaitingBuild,
    WaitingSession,
)

# In which order work deserves hosts: urgent work, priority, then fair share between trees and their series.
#
# Fair share is weighted fair queueing in the form of stride scheduling (Waldspurger and Weihl, 1995): a tree's *pass*
# is
#
#     pass = seconds that hosts gave it in the last 24 hours / 2^priority
#
# and the tree with the smallest pass goes next; inside of it the same holds between its series (all of one weight).
# What is given out counts at once with the seconds that it will take as expected, so that many hosts that become free
# together are shared, too. A tree that posts a hundred series gets no more than one that posts one. Between two trees
# that both always have work, seconds come to stand as 2^priority of one to 2^priority of the other.
#
# Priority comes before fair share: work of a higher one goes first. So that nothing starves, each whole day of
# waiting counts as one step of priority.

_W = TypeVar("_W", bound=Waiter)
_Rank = tuple[int, float]

# One day of waiting weighs as much as one step of priority: the work of a night overtakes nothing urgent, and what was
# passed over for a week is at last more important than a tree of seven steps more.
AGING_SECONDS = 86_400
# Weights of 2^-10 to 2^10: beyond a thousandfold a share is nothing, or everything.
_STEEPEST = 10


def weight_of(priority: int) -> float:
    return float(2.0 ** max(-_STEEPEST, min(_STEEPEST, priority)))


class Passes:
    """How much each tree and series has had, by its weight; what is given out now is charged here."""

    def __init__(self, spent: Spent, weights: Mapping[int, float]) -> None:
        self._trees = dict(spent.trees)
        self._series = dict(spent.series)
        self._weights = weights
        self._expected = spent.expected

    def of_tree(self, tree: int) -> float:
        return self._trees.get(tree, 0.0) / self._weights.get(tree, 1.0)

    def of_series(self, series: int) -> float:
        return self._series.get(series, 0.0)

    def charge(self, work: Waiter) -> None:
        self._trees[work.tree] = self._trees.get(work.tree, 0.0) + self._expected
        self._series[work.series] = self._series.get(work.series, 0.0) + self._expected


def fair_order(works: Iterable[_W], passes: Passes, now: datetime, expected: float) -> Iterator[_W]:
    """Yield the works in the order in which they deserve hosts; charge what was given out before asking for the next.

    A piece of work that is yielded and not charged costs its tree nothing. The order is the same whatever the order
    of `works`.
    """
    ranks: dict[_Rank, list[_W]] = defaultdict(list)
    for work in works:
        ranks[rank_of(work, now, expected)].append(work)
    for rank in sorted(ranks):
        yield from _shared(ranks[rank], passes)


def rank_of(work: Waiter, now: datetime, expected: float) -> _Rank:
    """Forced checks; then what must begin now to meet its deadline, the earliest first; then by priority and age."""
    if work.forced:
        return 0, 0.0
    if work.deadline is not None and (work.deadline - now).total_seconds() <= expected:
        return 1, work.deadline.timestamp()
    return 2, -effective_priority(work, now)


def effective_priority(work: Waiter, now: datetime) -> int:
    """The tree's priority and its own, raised by waiting."""
    return work.priority + max(0, int((now - work.since).total_seconds() // AGING_SECONDS))


def _shared(works: list[_W], passes: Passes) -> Iterator[_W]:
    """Works of one rank: the tree with the smallest pass, in it the series with the smallest, in it the oldest."""
    trees: dict[int, list[_W]] = defaultdict(list)
    for work in works:
        trees[work.tree].append(work)
    queues = {tree: _Series(own, passes) for tree, own in trees.items()}
    while queues:
        tree = min(queues, key=lambda one: (passes.of_tree(one), queues[one].oldest, one))
        queue = queues[tree]
        yield queue.pop()
        if not queue.settle():
            del queues[tree]


class _Series(Generic[_W]):
    """The works of one tree, by series. Only the series that was popped can have been charged since."""

    def __init__(self, works: list[_W], passes: Passes) -> None:
        self._passes = passes
        self._works: dict[int, list[_W]] = defaultdict(list)
        # The first of a series stands at the end of its list.
        for work in sorted(works, key=_in_series, reverse=True):
            self._works[work.series].append(work)
        self._heap = [self._entry(series) for series in self._works]
        heapq.heapify(self._heap)
        self.oldest = min(work.since for work in works)

    def _entry(self, series: int) -> tuple[int, float, datetime, int]:
        first = self._works[series][-1]
        # Whose session can begin soonest: a series that lacks one kernel goes before one that lacks two.
        return first.stage, self._passes.of_series(series), first.since, series

    def pop(self) -> _W:
        return self._works[self._heap[0][-1]].pop()

    def settle(self) -> bool:
        """Put the series that was popped where it belongs now; False when no work is left."""
        series = self._heap[0][-1]
        if self._works[series]:
            heapq.heapreplace(self._heap, self._entry(series))
        else:
            heapq.heappop(self._heap)
        return bool(self._heap)


def _in_series(work: Waiter) -> tuple[bool, datetime, int]:
    """The base before what is compared with it, then the oldest."""
    return not (isinstance(work, WaitingBuild) and work.base), work.since, work.id


# Where a forced check may go: it is how a machine gets out of the latter two.
_CHECKED = frozenset({Health.GOOD, Health.UNKNOWN, Health.QUARANTINED})
_WORDS = {
    State.RESERVED: "is given to another session",
    State.WORKING: "works at another session",
    State.RETURNING: "is on its way back from a session",
    State.POWER_CYCLING: "is being switched off and on",
    State.OFFLINE: "is offline",
}


def machine_trouble(snapshot: Snapshot, session: WaitingSession) -> str:
    """Why the session's machine cannot take it now."""
    machine = snapshot.machines[session.machine]
    unfit = _unfit(machine, goes_there=_goes_there(machine, session))
    return unfit or _unmet(machine, session) or _taken(machine)


def lasting_trouble(snapshot: Snapshot, session: WaitingSession) -> str:
    """The part of it that time alone does not end: something has to be mended, or a person to decide."""
    machine = snapshot.machines[session.machine]
    there = _unfit(machine, goes_there=_goes_there(machine, session)) or _lacking(machine, session)
    return there or (_taken(machine) if machine.state == State.OFFLINE and not machine.cycling else "")


def _goes_there(machine: KnownMachine, session: WaitingSession) -> bool:
    return (session.forced and machine.health in _CHECKED) or (session.tries and machine.held)


def _lacking(machine: KnownMachine, session: WaitingSession) -> str:
    lacking = session.needs - machine.capabilities
    return f"{machine.name} has no {', '.join(sorted(lacking))}" if lacking else ""


def _unmet(machine: KnownMachine, session: WaitingSession) -> str:
    return _lacking(machine, session) or ("" if session.built else "a kernel of it is being built again")


def _taken(machine: KnownMachine) -> str:
    if machine.busy:
        return f"{machine.name} works at {machine.busy}"
    if machine.cycling:
        return f"{machine.name} is to be switched off and on"
    if machine.state != State.IDLE:
        return _told(f"{machine.name} {_WORDS[State(machine.state)]}", machine.state_reason)
    return ""


def _unfit(machine: KnownMachine, *, goes_there: bool) -> str:
    if not machine.enabled:
        return f"{machine.name} is disabled"
    if machine.health == Health.GOOD or goes_there:
        return ""
    return _told(f"{machine.name}: {Health(machine.health).label}", machine.health_reason)


def builder_trouble(builder: KnownBuilder) -> str:
    """Why the builder takes no build at all now."""
    if not builder.enabled:
        return f"{builder.name} is disabled"
    if builder.health != Health.GOOD:
        return _told(f"{builder.name}: {Health(builder.health).label}", builder.health_reason)
    if builder.state == State.OFFLINE:
        return _told(f"{builder.name} is offline", builder.state_reason)
    return ""


def build_trouble(snapshot: Snapshot, build: WaitingBuild) -> str:
    """Why no builder can take the build now: what is missing, else how those that could do are."""
    builders = sorted(snapshot.builders.values(), key=lambda one: one.name)
    if not builders:
        return "there is no builder"
    able = [one for one in builders if one.can(build)]
    if not able:
        if not any(one.makes(build.arch) for one in builders):
            return f"no builder compiles for {build.arch}"
        return f"no builder that compiles for {build.arch} has the toolchain {build.toolchain}"
    troubles = [builder_trouble(one) for one in able]
    if all(troubles):
        return "; ".join(troubles)
    fit = [one for one, trouble in zip(able, troubles, strict=True) if not trouble]
    if all(one.busy >= one.capacity for one in fit):
        return "; ".join(f"{one.name} makes {one.busy} of at most {one.capacity} builds" for one in fit)
    return ""


def _told(what: str, why: str) -> str:
    return f"{what}: {why}" if why else what


def decide(snapshot: Snapshot) -> list[Decision]:
    """What to give out now, in the order in which it should be opened.

    Power cycles and forced checks bring machines back, so they come first; then kernels, which sessions wait for; then
    sessions. A machine gets one session, a builder as many builds as it has room. Where the dispatcher's capacity is
    limited nothing smaller overtakes: a build that needs the whole host would otherwise wait for ever.
    """
    chosen: list[Decision] = []
    free = snapshot.free_slots
    for decision in _all(snapshot):
        if free is not None:
            if decision.slots > free:
                break
            free -= decision.slots
        chosen.append(decision)
    return chosen


def _all(snapshot: Snapshot) -> Iterator[Decision]:
    cycling = set()
    for cycle in sorted(snapshot.cycles, key=lambda one: (one.since, one.id)):
        if cycle.due <= snapshot.now and not snapshot.machines[cycle.machine].busy:
            cycling.add(cycle.machine)
            yield Decision(WorkKind.POWER_CYCLE, cycle.id, None, 1)
    taken = set(cycling)
    passes = Passes(snapshot.on_machines, snapshot.weights)
    yield from _sessions(snapshot, [one for one in snapshot.sessions if one.forced], passes, taken)
    yield from _builds(snapshot)
    yield from _sessions(snapshot, [one for one in snapshot.sessions if not one.forced], passes, taken)


def _sessions(
    snapshot: Snapshot, sessions: list[WaitingSession], passes: Passes, taken: set[int]
) -> Iterator[Decision]:
    ready = [one for one in sessions if one.due <= snapshot.now and not machine_trouble(snapshot, one)]
    left = {one.machine for one in ready} - taken
    for session in fair_order(ready, passes, snapshot.now, snapshot.on_machines.expected):
        if not left:
            return
        if session.machine not in left:
            continue
        left.discard(session.machine)
        taken.add(session.machine)
        passes.charge(session)
        yield Decision(WorkKind.SESSION, session.id, session.machine, _slots(snapshot, session))


def _slots(snapshot: Snapshot, session: WaitingSession) -> int:
    """A machine on the wall clock wants a quiet host; counted instructions need one CPU."""
    return snapshot.all_slots if snapshot.machines[session.machine].alone else 1


def _builds(snapshot: Snapshot) -> Iterator[Decision]:
    passes = Passes(snapshot.on_builders, snapshot.weights)
    room = {one.id: one.capacity - one.busy for one in snapshot.builders.values()}
    ready = [one for one in snapshot.builds if one.due <= snapshot.now]
    for build in fair_order(ready, passes, snapshot.now, snapshot.on_builders.expected):
        builder = _choose(snapshot, build, room)
        if builder is None:
            if not any(left > 0 for left in room.values()):
                return
            continue
        room[builder.id] -= 1
        passes.charge(build)
        # A compiler uses all CPUs.
        yield Decision(WorkKind.BUILD, build.id, builder.id, snapshot.all_slots)


def _choose(snapshot: Snapshot, build: WaitingBuild, room: dict[int, int]) -> KnownBuilder | None:
    """Of the builders that can and have room: the one whose work tree is warm, else the emptiest."""
    able = [one for one in snapshot.builders.values() if room[one.id] > 0 and one.can(build)]
    able = [one for one in able if not builder_trouble(one)]
    if not able:
        return None
    warm = snapshot.warm.get((build.tree, build.config))
    return min(able, key=lambda one: (one.id != warm, -room[one.id] / one.capacity, one.name))

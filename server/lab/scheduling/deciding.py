"""The decision: a pure function from a snapshot to what is given out, in order."""

from collections.abc import Iterator

from server.lab.dispatch.base import Kind
from server.lab.scheduling.fairness import Passes, fair_order
from server.lab.scheduling.reasons import builder_trouble, machine_trouble
from server.lab.scheduling.snapshot import BuilderFacts, Decision, Snapshot, WaitingBuild, WaitingSession


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
            yield Decision(Kind.POWER_CYCLE, cycle.id, None, 1)
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
        yield Decision(Kind.SESSION, session.id, session.machine, _slots(snapshot, session))


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
        yield Decision(Kind.BUILD, build.id, builder.id, snapshot.all_slots)


def _choose(snapshot: Snapshot, build: WaitingBuild, room: dict[int, int]) -> BuilderFacts | None:
    """Of the builders that can and have room: the one whose work tree is warm, else the emptiest."""
    able = [one for one in snapshot.builders.values() if room[one.id] > 0 and one.can(build)]
    able = [one for one in able if not builder_trouble(one)]
    if not able:
        return None
    warm = snapshot.warm.get((build.tree, build.config))
    return min(able, key=lambda one: (one.id != warm, -room[one.id] / one.capacity, one.name))

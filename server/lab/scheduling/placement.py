"""The decision with its rows, and for pages why the rest waits and how much goes before it."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from server.builds.models import Build
from server.lab.models import Builder, Machine, PowerCycle, Session
from server.lab.port import WorkKind, dispatcher
from server.lab.scheduling.decision import Passes, build_trouble, decide, fair_order, machine_trouble
from server.lab.scheduling.reader import read_snapshot
from server.lab.scheduling.snapshot import Snapshot, WaitingBuild, WaitingSession
from server.lab.work import local_builder


@dataclass(frozen=True)
class Placement:
    """Work to be opened on a host; a power cycle has none: the control host does it."""

    item: Build | Session | PowerCycle
    host: Builder | Machine | None
    slots: int


def next_placements(*, free_slots: int | None) -> list[Placement]:
    """What to open now, in this order. `free_slots` is what a dispatcher with limited capacity has left; null: all."""
    if dispatcher().is_local:
        local_builder()
    decisions = decide(read_snapshot(free_slots=free_slots))
    rows = _rows({kind: [one.id for one in decisions if one.kind == kind] for kind in WorkKind})
    hosts = [one.host for one in decisions if one.host is not None]
    builders = Builder.objects.in_bulk(hosts)
    placements = []
    for one in decisions:
        item = rows.get((one.kind, one.id))
        # What another process took away meanwhile is no concern of this round.
        if item is None:
            continue
        host = item.machine if isinstance(item, Session) else builders.get(one.host or 0)
        placements.append(Placement(item, None if isinstance(item, PowerCycle) else host, one.slots))
    return placements


def _rows(wanted: Mapping[WorkKind, list[int]]) -> dict[tuple[WorkKind, int], Build | Session | PowerCycle]:
    builds = Build.objects.select_related("revision__tree", "config", "toolchain").in_bulk(wanted[WorkKind.BUILD])
    sessions = Session.objects.select_related("machine", "series").in_bulk(wanted[WorkKind.SESSION])
    cycles = PowerCycle.objects.select_related("machine").in_bulk(wanted[WorkKind.POWER_CYCLE])
    rows: dict[tuple[WorkKind, int], Build | Session | PowerCycle] = {}
    rows.update({(WorkKind.BUILD, pk): build for pk, build in builds.items()})
    rows.update({(WorkKind.SESSION, pk): session for pk, session in sessions.items()})
    rows.update({(WorkKind.POWER_CYCLE, pk): cycle for pk, cycle in cycles.items()})
    return rows


_NEXT = "goes with the next round"


@dataclass(frozen=True)
class Waiting:
    """One piece of work that waits. `position` counts from 1, among sessions for one machine or among all builds."""

    kind: WorkKind
    id: int
    position: int
    reason: str
    host: str
    tree: int
    series: int
    since: datetime


def queue_in_order(snapshot: Snapshot | None = None) -> tuple[Waiting, ...]:
    """Everything that waits in the order in which it would go: power cycles, forced checks, builds, other sessions."""
    snapshot = snapshot or read_snapshot()
    forced = {one.id for one in snapshot.sessions if one.forced}
    sessions = list(_sessions(snapshot))
    checks = [one for one in sessions if one.id in forced]
    others = [one for one in sessions if one.id not in forced]
    waiting = (*_cycles(snapshot), *checks, *_builds(snapshot), *others)
    port = dispatcher()
    if port.slots != 0:
        return waiting
    return tuple(replace(one, reason=f"the {port.name} dispatcher hands nothing out") for one in waiting)


def why_waiting(item: Build | Session | PowerCycle, snapshot: Snapshot | None = None) -> Waiting | None:
    """Its place in the queue and what it waits for; None if it does not wait."""
    kind = (
        WorkKind.BUILD
        if isinstance(item, Build)
        else WorkKind.SESSION
        if isinstance(item, Session)
        else WorkKind.POWER_CYCLE
    )
    return next((one for one in queue_in_order(snapshot) if (one.kind, one.id) == (kind, item.pk)), None)


def _cycles(snapshot: Snapshot) -> Iterator[Waiting]:
    for number, cycle in enumerate(sorted(snapshot.cycles, key=lambda one: (one.since, one.id)), start=1):
        machine = snapshot.machines[cycle.machine]
        reason = f"{machine.name} works at {machine.busy}" if machine.busy else _NEXT
        if cycle.due > snapshot.now:
            reason = _again(cycle.fruitless, cycle.due)
        yield Waiting(WorkKind.POWER_CYCLE, cycle.id, number, reason, machine.name, 0, 0, cycle.since)


def _builds(snapshot: Snapshot) -> Iterator[Waiting]:
    passes = Passes(snapshot.on_builders, snapshot.weights)
    order = fair_order(snapshot.builds, passes, snapshot.now, snapshot.on_builders.expected)
    for position, build in enumerate(order, start=1):
        passes.charge(build)
        reason = _why_build(snapshot, build) or _after(position - 1, "builds")
        yield Waiting(WorkKind.BUILD, build.id, position, reason, "", build.tree, build.series, build.since)


def _why_build(snapshot: Snapshot, build: WaitingBuild) -> str:
    if build.due > snapshot.now:
        return _again(build.fruitless, build.due)
    return build_trouble(snapshot, build)


def _sessions(snapshot: Snapshot) -> Iterator[Waiting]:
    passes = Passes(snapshot.on_machines, snapshot.weights)
    before: Counter[int] = Counter()
    for session in fair_order(snapshot.sessions, passes, snapshot.now, snapshot.on_machines.expected):
        passes.charge(session)
        number = before[session.machine]
        before[session.machine] += 1
        reason = _why_session(snapshot, session) or _after(number, "sessions")
        name = snapshot.machines[session.machine].name
        yield Waiting(
            WorkKind.SESSION, session.id, number + 1, reason, name, session.tree, session.series, session.since
        )


def _why_session(snapshot: Snapshot, session: WaitingSession) -> str:
    if session.due > snapshot.now:
        return _again(session.fruitless, session.due)
    return machine_trouble(snapshot, session)


def _again(fruitless: int, due: datetime) -> str:
    return f"tried {fruitless} times in vain; again from {due:%H:%M:%S} UTC on"


def _after(number: int, what: str) -> str:
    if number == 1:
        return f"1 {what.removesuffix('s')} goes before it"
    return f"{number} {what} go before it" if number else _NEXT

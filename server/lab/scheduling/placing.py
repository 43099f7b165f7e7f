"""The decision with its rows."""

from collections.abc import Mapping
from dataclasses import dataclass

from server.builds.models import Build
from server.lab.dispatch.base import Kind
from server.lab.models import Builder, Machine, PowerCycle, Session
from server.lab.scheduling.builders import is_local_site, local_builder
from server.lab.scheduling.deciding import decide
from server.lab.scheduling.reading import read_snapshot


@dataclass(frozen=True)
class Placement:
    """Work to be opened on a host; a power cycle has none: the control host does it."""

    item: Build | Session | PowerCycle
    host: Builder | Machine | None
    slots: int


def next_placements(*, free_slots: int | None) -> list[Placement]:
    """What to open now, in this order. `free_slots` is what a dispatcher with limited capacity has left; null: all."""
    if is_local_site():
        local_builder()
    decisions = decide(read_snapshot(free_slots=free_slots))
    rows = _rows({kind: [one.id for one in decisions if one.kind == kind] for kind in Kind})
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


def _rows(wanted: Mapping[Kind, list[int]]) -> dict[tuple[Kind, int], Build | Session | PowerCycle]:
    builds = Build.objects.select_related("revision__tree", "config", "toolchain").in_bulk(wanted[Kind.BUILD])
    sessions = Session.objects.select_related("machine", "series").in_bulk(wanted[Kind.SESSION])
    cycles = PowerCycle.objects.select_related("machine").in_bulk(wanted[Kind.POWER_CYCLE])
    rows: dict[tuple[Kind, int], Build | Session | PowerCycle] = {}
    rows.update({(Kind.BUILD, pk): build for pk, build in builds.items()})
    rows.update({(Kind.SESSION, pk): session for pk, session in sessions.items()})
    rows.update({(Kind.POWER_CYCLE, pk): cycle for pk, cycle in cycles.items()})
    return rows

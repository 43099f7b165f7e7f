"""Machines: what they are, how they are, what they did last."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Q

from server.dashboard.facts import Fact, readable_facts
from server.lab.hardware import HardwareChange, latest_changes
from server.lab.models import Boot, CoreType, Machine, Session

_LATEST = 25
# Older changes of a machine stay in the history of states.
_CHANGES = 5


@dataclass(frozen=True, slots=True)
class MachineRow:
    name: str
    uarch: str
    uarch_title: str
    arch: str
    virtual: bool
    clock: str
    enabled: bool
    health: str
    health_reason: str
    boot_driver: str
    last_seen_at: datetime | None
    running: int | None
    waiting: int


@dataclass(frozen=True, slots=True)
class SessionRow:
    id: int
    machine: str
    uarch: str
    virtual: bool
    series_id: int | None
    series_subject: str
    state: str
    state_label: str
    reason: str
    state_since: datetime
    boots: int
    measured: int
    failed: int


@dataclass(frozen=True, slots=True)
class MachinePage:
    row: MachineRow
    config: str
    toolchain: str
    boots_per_side: int
    core_types: tuple[tuple[str, str], ...]
    options: tuple[Fact, ...]
    facts: tuple[Fact, ...]
    changes: tuple[HardwareChange, ...]
    sessions: tuple[SessionRow, ...]


def machine_rows() -> tuple[MachineRow, ...]:
    """All machines with the session each is busy with and how many wait for it; three queries."""
    machines = Machine.objects.select_related("uarch").all()
    busy = _busy()
    waiting = dict(
        Session.objects.filter(state=Session.State.PLANNED).order_by().values_list("machine_id").annotate(Count("id"))
    )
    return tuple(_row(machine, busy.get(machine.pk), waiting.get(machine.pk, 0)) for machine in machines)


def machine_page(name: str) -> MachinePage | None:
    machine = Machine.objects.select_related("uarch", "config", "toolchain").filter(name=name).first()
    if machine is None:
        return None
    waiting = Session.objects.filter(machine=machine, state=Session.State.PLANNED).count()
    return MachinePage(
        row=_row(machine, _busy().get(machine.pk), waiting),
        config=machine.config.name,
        toolchain=machine.toolchain.name,
        boots_per_side=machine.boots_per_side,
        core_types=tuple(CoreType.objects.filter(machine=machine).values_list("name", "cpus")),
        options=readable_facts(machine.driver_options),
        facts=readable_facts(machine.facts),
        changes=latest_changes(machine, limit=_CHANGES),
        sessions=session_rows(Q(machine=machine), limit=_LATEST),
    )


def session_rows(where: Q, *, limit: int | None = None) -> tuple[SessionRow, ...]:
    """Sessions with the numbers of their boots, in one query, newest first."""
    state = "boots__state"
    query = (
        Session.objects.filter(where)
        .select_related("machine__uarch", "series")
        .annotate(
            total=Count("boots"),
            measured=Count("boots", filter=Q(**{state: Boot.State.MEASURED})),
            failed=Count("boots", filter=Q(**{state: Boot.State.FAILED})),
        )
        .order_by("-id")
    )
    return tuple(
        SessionRow(
            id=row.pk,
            machine=row.machine.name,
            uarch=row.machine.uarch.name,
            virtual=row.machine.virtual,
            series_id=row.series_id,
            series_subject=row.series.subject if row.series else "",
            state=row.state,
            state_label=Session.State(row.state).label,
            reason=row.reason,
            state_since=row.state_since,
            boots=row.total,
            measured=row.measured,
            failed=row.failed,
        )
        for row in query[:limit]
    )


def _busy() -> Mapping[int, int]:
    """The session that each busy machine holds."""
    active = [Session.State.DISPATCHED, Session.State.RUNNING]
    return dict(Session.objects.filter(state__in=active).order_by("-id").values_list("machine_id", "id"))


def _row(machine: Machine, running: int | None, waiting: int) -> MachineRow:
    return MachineRow(
        name=machine.name,
        uarch=machine.uarch.name,
        uarch_title=machine.uarch.title,
        arch=machine.uarch.arch,
        virtual=machine.virtual,
        clock=machine.clock,
        enabled=machine.enabled,
        health=machine.health,
        health_reason=machine.health_reason,
        boot_driver=machine.boot_driver,
        last_seen_at=machine.last_seen_at,
        running=running,
        waiting=waiting,
    )

"""Machines and sessions as rows of tables."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Q

from server.dashboard.selectors.hosts import HostStatus, host_status
from server.lab.models import Boot, Machine, Session
from server.lab.purposes import purpose_of


@dataclass(frozen=True, slots=True)
class MachineRow:
    name: str
    uarch: str
    uarch_title: str
    arch: str
    virtual: bool
    clock: str
    boot_driver: str
    host: HostStatus
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
    purpose: str
    asked: str
    state: str
    state_label: str
    reason: str
    state_since: datetime
    boots: int
    measured: int
    failed: int


def machine_rows() -> tuple[MachineRow, ...]:
    """All machines with the session each is busy with and how many wait for it; three queries."""
    machines = Machine.objects.select_related("uarch").all()
    busy = busy_machines()
    waiting = dict(
        Session.objects.filter(state=Session.State.PLANNED).order_by().values_list("machine_id").annotate(Count("id"))
    )
    return tuple(machine_row(machine, busy.get(machine.pk), waiting.get(machine.pk, 0)) for machine in machines)


def session_rows(where: Q, *, limit: int | None = None) -> tuple[SessionRow, ...]:
    """Sessions with the numbers of their boots, in one query, newest first."""
    state = "boots__state"
    query = (
        Session.objects.filter(where)
        .select_related("machine__uarch", "series", "trial")
        .defer("series__trailers")
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
            purpose=row.purpose,
            asked=purpose_of(row),
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


def busy_machines() -> Mapping[int, int]:
    """The session that each busy machine holds."""
    active = [Session.State.DISPATCHED, Session.State.RUNNING]
    return dict(Session.objects.filter(state__in=active).order_by("-id").values_list("machine_id", "id"))


def machine_row(machine: Machine, running: int | None, waiting: int) -> MachineRow:
    return MachineRow(
        name=machine.name,
        uarch=machine.uarch.name,
        uarch_title=machine.uarch.title,
        arch=machine.uarch.arch,
        virtual=machine.virtual,
        clock=machine.clock,
        boot_driver=machine.boot_driver,
        host=host_status(machine),
        running=running,
        waiting=waiting,
    )

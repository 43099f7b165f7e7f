"""How work gets to hosts now: the dispatcher and its controller, what has waited longest, and what is wrong with it."""

from dataclasses import dataclass
from datetime import datetime

from django.db.models import QuerySet

from server.builds.models import Build
from server.dashboard.rows.host_status import PowerCycleRow, power_cycle_row
from server.lab.models import Builder, Host, Machine, PowerCycle, Session
from server.lab.port import Alarm, ControllerStatus, dispatcher

_SHOWN = 50


@dataclass(frozen=True, slots=True)
class SickHost:
    """A machine or builder that gets no work because of its health."""

    kind: str
    name: str
    health: str
    reason: str
    since: datetime


@dataclass(frozen=True, slots=True)
class OldestRow:
    """What of a kind has waited longest."""

    kind: str
    id: int
    since: datetime
    reason: str


@dataclass(frozen=True, slots=True)
class DispatchStatus:
    """`about` tells by what work goes; `controller` is None where none starts agents."""

    about: str
    controller: ControllerStatus | None
    alarms: tuple[Alarm, ...]
    sick: tuple[SickHost, ...]
    oldest: tuple[OldestRow, ...]
    power_cycles: tuple[PowerCycleRow, ...]


def dispatch_status(now: datetime) -> DispatchStatus:
    """At most nine queries."""
    port = dispatcher()
    cycles = PowerCycle.objects.filter(state__in=PowerCycle.OPEN).select_related("machine")
    return DispatchStatus(
        about=port.about,
        controller=port.controller(),
        alarms=port.alarms(now),
        sick=(*_sick("machine", Machine.objects.all()), *_sick("builder", Builder.objects.all())),
        oldest=_oldest(),
        power_cycles=tuple(power_cycle_row(cycle) for cycle in cycles[:_SHOWN]),
    )


def _sick(kind: str, hosts: "QuerySet[Machine] | QuerySet[Builder]") -> tuple[SickHost, ...]:
    taken_out = [Host.Health.QUARANTINED, Host.Health.MAINTENANCE, Host.Health.UNKNOWN]
    rows = hosts.filter(enabled=True, health__in=taken_out).order_by("health_since", "name")
    return tuple(SickHost(kind, row.name, row.health, row.health_reason, row.health_since) for row in rows[:_SHOWN])


def _oldest() -> tuple[OldestRow, ...]:
    wanted = Build.objects.filter(state=Build.State.WANTED).defer("log_tail", "first_error")
    builds = wanted.order_by("state_since", "id").first()
    sessions = Session.objects.filter(state=Session.State.PLANNED).order_by("state_since", "id").first()
    rows = [row for row in (("build", builds), ("session", sessions)) if row[1] is not None]
    return tuple(OldestRow(kind, row.pk, row.state_since, row.reason) for kind, row in rows if row is not None)

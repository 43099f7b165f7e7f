"""How machines and builders are, what a person may do to them, and machines and sessions as rows of tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.db.models import Count, Q, QuerySet

from server.core.models import Transition
from server.core.rows.together import Row
from server.lab.care import can_power_cycle
from server.lab.hosts.probes import MachineKind, kind_of
from server.lab.models import Boot, Builder, Host, Machine, PowerCycle, Session
from server.lab.port import dispatcher
from server.lab.trials.question import purpose_of


def people_with(permission: str) -> int:
    """How many may log in at the admin site and have this right, written as `room.codename`."""
    return asked_of_people(permission).count()


def asked_of_people(permission: str) -> "QuerySet[Any, Any]":
    """Their ids, as lists of values."""
    room, codename = permission.split(".")
    right = Permission.objects.filter(content_type__app_label=room, codename=codename)
    allowed = Q(is_superuser=True) | Q(user_permissions__in=right) | Q(groups__permissions__in=right)
    staff = get_user_model().objects.filter(allowed, is_active=True, is_staff=True)
    return staff.order_by().distinct().values_list("pk")


# The whole log is in the admin; these are the last lines of each kind.
_HEALTH_LINES = 25
_STATE_LINES = 25
_POWER_CYCLES = 10


@dataclass(frozen=True, slots=True)
class HostStatus:
    """`state` is what it does, `health` how it is, `health_hold` what alone lifts its quarantine besides a person."""

    name: str
    enabled: bool
    node: str
    state: str
    state_label: str
    state_reason: str
    state_since: datetime
    health: str
    health_label: str
    health_reason: str
    health_since: datetime
    health_hold: str
    capabilities: tuple[str, ...]
    last_seen_at: datetime | None


@dataclass(frozen=True, slots=True)
class AuditLine:
    at: datetime
    before: str
    after: str
    reason: str
    actor: str


@dataclass(frozen=True, slots=True)
class Audit:
    """Newest first; changes of health, which people ask for, apart from those of state, which every session makes.

    `kind` are those of what a machine is taken for: physical, unknown, virtual; `enrolments` are the codes made for it.
    """

    health: tuple[AuditLine, ...]
    state: tuple[AuditLine, ...]
    kind: tuple[AuditLine, ...]
    enrolments: tuple[AuditLine, ...]


@dataclass(frozen=True, slots=True)
class PowerCycleRow:
    id: int
    machine: str
    state: str
    state_label: str
    reason: str
    state_since: datetime
    created_at: datetime


def host_status(host: Machine | Builder) -> HostStatus:
    return HostStatus(
        name=host.name,
        enabled=host.enabled,
        node=host.node_name,
        state=host.state,
        state_label=Host.State(host.state).label,
        state_reason=host.state_reason,
        state_since=host.state_since,
        health=host.health,
        health_label=Host.Health(host.health).label,
        health_reason=host.health_reason,
        health_since=host.health_since,
        health_hold=host.health_hold if isinstance(host, Machine) and host.is_held else "",
        capabilities=tuple(host.capabilities),
        last_seen_at=host.last_seen_at,
    )


def asked_of_audit(host: Machine | Builder) -> "tuple[QuerySet[Any, Any], ...]":
    return (
        _lines(host, "health", _HEALTH_LINES),
        _lines(host, "state", _STATE_LINES),
        _lines(host, "kind", _HEALTH_LINES),
        _lines(host, "enrolment", _HEALTH_LINES),
    )


def audit(told: Sequence[Sequence[Row]]) -> Audit:
    """From the answers to `asked_of_audit`."""
    return Audit(*(tuple(AuditLine(*row) for row in rows) for rows in told))


def power_cycles(where: Q, most: int = _POWER_CYCLES) -> "QuerySet[Any, Any]":
    """The newest first, for `power_cycle_rows`."""
    rows = PowerCycle.objects.filter(where).order_by("-id")
    return rows.values_list("pk", "machine__name", "state", "reason", "state_since", "created_at")[:most]


def power_cycle_rows(told: Sequence[Row]) -> tuple[PowerCycleRow, ...]:
    """From the answers to `power_cycles`."""
    return tuple(
        PowerCycleRow(pk, machine, state, PowerCycle.State(state).label, *rest) for pk, machine, state, *rest in told
    )


def _lines(host: Machine | Builder, what: str, limit: int) -> "QuerySet[Any, Any]":
    subject = f"{host._meta.model_name}-{what}"
    rows = Transition.objects.filter(subject=subject, subject_id=host.pk).order_by("-id")
    return rows.values_list("at", "before", "after", "reason", "actor")[:limit]


MACHINE_PERMISSION = "lab.change_machine"
BUILDER_PERMISSION = "lab.change_builder"


class Action(StrEnum):
    QUARANTINE = "quarantine"
    RELEASE = "release"
    CHECK = "check"
    POWER_CYCLE = "power-cycle"
    MAINTENANCE = "maintenance"
    RETIRE = "retire"
    PHYSICAL = "physical"
    DOUBT = "doubt"
    ENROL = "enrol"


_LABELS = {
    Action.QUARANTINE: "Quarantine",
    Action.RELEASE: "Release",
    Action.CHECK: "Check: a health session first",
    Action.POWER_CYCLE: "Switch off and on",
    Action.MAINTENANCE: "Take into your hands",
    Action.RETIRE: "Retire for good",
    Action.PHYSICAL: "It is physical, on my word",
    Action.DOUBT: "Take back that it is physical",
    Action.ENROL: "Make an enrolment code",
}
_SICK = frozenset({Host.Health.QUARANTINED, Host.Health.MAINTENANCE})


@dataclass(frozen=True, slots=True)
class Actions:
    """`choices` are (value, label) of what makes sense now; `people` counts those who may, `permission` is the right
    that they have.
    """

    choices: tuple[tuple[str, str], ...]
    people: int
    permission: str


def actions_of(host: Machine | Builder, people: int) -> Actions:
    permission = MACHINE_PERMISSION if isinstance(host, Machine) else BUILDER_PERMISSION
    # What was retired by mistake comes back by the same way as anything else.
    wanted = [Action.RELEASE] if host.health == Host.Health.RETIRED else _sensible(host)
    return Actions(
        choices=tuple((action.value, _LABELS[action]) for action in wanted),
        people=people,
        permission=permission,
    )


def _sensible(host: Machine | Builder) -> list[Action]:
    found = []
    if host.health != Host.Health.QUARANTINED:
        found.append(Action.QUARANTINE)
    if host.health in _SICK:
        found.append(Action.RELEASE)
    if isinstance(host, Machine) and host.enabled and host.health != Host.Health.MAINTENANCE:
        found.append(Action.CHECK)
    if isinstance(host, Machine) and host.state != Host.State.POWER_CYCLING and can_power_cycle():
        found.append(Action.POWER_CYCLE)
    if host.health != Host.Health.MAINTENANCE:
        found.append(Action.MAINTENANCE)
    if not dispatcher().is_local:
        found.append(Action.ENROL)
    return [*found, *(_vouching(host) if isinstance(host, Machine) else ()), Action.RETIRE]


def _vouching(machine: Machine) -> list[Action]:
    if machine.physical_at is not None:
        return [Action.DOUBT]
    return [Action.PHYSICAL] if kind_of(machine) is MachineKind.UNKNOWN else []


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

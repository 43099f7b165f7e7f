"""How a machine or a builder is and what it does, kept apart, and the log of both."""

from dataclasses import dataclass
from datetime import datetime

from server.core.models import Transition
from server.lab.models import Builder, Host, JenkinsNode, Machine, PowerCycle

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

    `kind` are those of what a machine is taken for: physical, unknown, virtual.
    """

    health: tuple[AuditLine, ...]
    state: tuple[AuditLine, ...]
    kind: tuple[AuditLine, ...]


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A host's node as the Jenkins controller last showed it."""

    name: str
    online: bool
    connected: bool
    marked_offline: bool
    offline_reason: str
    held_for: str
    busy_with: str
    seen_at: datetime


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


def audit_of(host: Machine | Builder) -> Audit:
    """Three queries."""
    return Audit(
        health=_lines(host, "health", _HEALTH_LINES),
        state=_lines(host, "state", _STATE_LINES),
        kind=_lines(host, "kind", _HEALTH_LINES),
    )


def node_of(host: Machine | Builder) -> NodeRow | None:
    row = JenkinsNode.objects.filter(name=host.node_name).first()
    return node_row(row) if row else None


def node_row(row: JenkinsNode) -> NodeRow:
    return NodeRow(
        name=row.name,
        online=row.online,
        connected=row.connected,
        marked_offline=row.temporarily_offline,
        offline_reason=row.offline_reason,
        held_for=row.held_for,
        busy_with=row.busy_with,
        seen_at=row.seen_at,
    )


def power_cycles_of(machine: Machine) -> tuple[PowerCycleRow, ...]:
    """The newest first."""
    rows = PowerCycle.objects.filter(machine=machine).select_related("machine").order_by("-id")
    return tuple(power_cycle_row(row) for row in rows[:_POWER_CYCLES])


def power_cycle_row(row: PowerCycle) -> PowerCycleRow:
    """`row` was read with its machine."""
    return PowerCycleRow(
        id=row.pk,
        machine=row.machine.name,
        state=row.state,
        state_label=PowerCycle.State(row.state).label,
        reason=row.reason,
        state_since=row.state_since,
        created_at=row.created_at,
    )


def _lines(host: Machine | Builder, what: str, limit: int) -> tuple[AuditLine, ...]:
    subject = f"{host._meta.model_name}-{what}"
    rows = Transition.objects.filter(subject=subject, subject_id=host.pk).order_by("-id")[:limit]
    return tuple(AuditLine(row.at, row.before, row.after, row.reason, row.actor) for row in rows)

"""How work gets to hosts at this moment: the dispatcher, its controller, its nodes, and what has waited longest."""

from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.db.models import QuerySet

from server.builds.models import Build
from server.core.addresses import without_credentials
from server.dashboard.selectors.dispatch_alarms import Alarm, alarms_of
from server.dashboard.selectors.hosts import NodeRow, PowerCycleRow, node_row, power_cycle_row
from server.lab.models import (
    Builder,
    Host,
    JenkinsController,
    JenkinsJob,
    JenkinsNode,
    Machine,
    PowerCycle,
    Session,
)

_NODES = 200
_SHOWN = 50


@dataclass(frozen=True, slots=True)
class ControllerRow:
    """`skew` is the controller's clock minus ours in seconds; figures of the last round are None before the first."""

    url: str
    version: str
    answered_at: datetime | None
    unreachable_since: datetime | None
    trouble: str
    alarm: str
    alarm_since: datetime | None
    skew: float | None
    round_at: datetime | None
    round_seconds: float | None
    round_requests: int | None


@dataclass(frozen=True, slots=True)
class JobRow:
    name: str
    problem: str
    checked_at: datetime | None


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
    adapter: str
    controller: ControllerRow | None
    alarms: tuple[Alarm, ...]
    jobs: tuple[JobRow, ...]
    nodes: tuple[NodeRow, ...]
    sick: tuple[SickHost, ...]
    oldest: tuple[OldestRow, ...]
    power_cycles: tuple[PowerCycleRow, ...]


def dispatch_status(now: datetime) -> DispatchStatus:
    """At most eight queries. With the local dispatcher there is no controller, and nothing of Jenkins is shown."""
    jenkins = _has_controller()
    controller = _its_controller() if jenkins else None
    jobs = JenkinsJob.objects.exclude(problem="", edited_at=None) if jenkins else JenkinsJob.objects.none()
    job_rows = tuple(JobRow(row.name, row.trouble, row.checked_at or row.edited_at) for row in jobs[:_SHOWN])
    nodes = JenkinsNode.objects.all()[:_NODES] if jenkins else []
    row = _controller(controller) if controller else None
    cycles = PowerCycle.objects.filter(state__in=PowerCycle.OPEN).select_related("machine")
    return DispatchStatus(
        adapter=settings.DISPATCHER,
        controller=row,
        alarms=alarms_of(controller, now) if jenkins else (),
        jobs=job_rows,
        nodes=tuple(node_row(node) for node in nodes),
        sick=(*_sick("machine", Machine.objects.all()), *_sick("builder", Builder.objects.all())),
        oldest=_oldest(),
        power_cycles=tuple(power_cycle_row(cycle) for cycle in cycles[:_SHOWN]),
    )


def dispatch_alarms(now: datetime) -> tuple[Alarm, ...]:
    """One query; the local dispatcher has none."""
    return alarms_of(_its_controller(), now) if _has_controller() else ()


def _has_controller() -> bool:
    return bool(settings.DISPATCHER == "jenkins")


def _its_controller() -> JenkinsController | None:
    return JenkinsController.objects.filter(url=settings.JENKINS_URL).first()


def _controller(row: JenkinsController) -> ControllerRow:
    return ControllerRow(
        url=without_credentials(row.url),
        version=row.version,
        answered_at=row.answered_at,
        unreachable_since=row.unreachable_since,
        trouble=row.trouble,
        alarm=row.alarm,
        alarm_since=row.alarm_since,
        skew=row.clock_skew_seconds,
        round_at=row.round_at,
        round_seconds=row.round_seconds,
        round_requests=row.round_requests,
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

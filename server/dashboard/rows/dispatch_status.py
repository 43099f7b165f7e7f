"""How work gets to hosts now: the dispatcher, its nodes, what has waited longest, and what is wrong with it."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import QuerySet

from server.builds.models import Build
from server.core.addresses import without_credentials
from server.dashboard.rows.host_status import NodeRow, PowerCycleRow, node_row, power_cycle_row
from server.lab.models import Builder, Host, JenkinsController, JenkinsJob, JenkinsNode, Machine, PowerCycle, Session

# Rounds follow each other within seconds; silence this long means that nobody makes any.
_SILENT = timedelta(minutes=5)
# Nothing is decided by the controller's clock, but people compare its logs with ours.
_SKEWED_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Alarm:
    """`details` are for staff: they may name the controller's address and files of this host."""

    what: str
    since: datetime | None
    advice: str
    details: str = ""


def alarms_of(controller: JenkinsController | None, now: datetime) -> tuple[Alarm, ...]:
    """The most urgent first; none when all is well."""
    if controller is None:
        advice = "Look at TIDEMARK_JENKINS_URL and whether a worker is running."
        return (Alarm("The Jenkins controller was never asked.", None, advice),)
    found = []
    if controller.alarm:
        advice = "Only a person can mend this; nothing but one request a minute is sent until then."
        found.append(Alarm(controller.alarm, controller.alarm_since, advice))
    if controller.unreachable_since:
        what = "The Jenkins controller does not answer."
        advice = "Nothing new is handed out; what runs goes on by itself. Look whether Jenkins runs."
        found.append(Alarm(what, controller.unreachable_since, advice, controller.trouble))
    if controller.round_at is None or now - controller.round_at > _SILENT:
        advice = "Rounds are made by the worker of the queue lab, woken by beat: look whether both run."
        found.append(Alarm("No round of the dispatcher was finished lately.", controller.round_at, advice))
    skew = controller.clock_skew_seconds
    if skew is not None and abs(skew) > _SKEWED_SECONDS:
        what = f"The controller's clock is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} ours."
        found.append(Alarm(what, None, "Nothing is decided by it; set the clock there to read its logs beside ours."))
    return tuple(found)


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

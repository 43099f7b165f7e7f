"""What pages and the API show of the controller: how it answers, its nodes and jobs, and each attempt's run there."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from django.conf import settings

from server.core.addresses import without_credentials
from server.lab.dispatch.jenkins.models import JenkinsController, JenkinsJob, JenkinsNode, JenkinsRun
from server.lab.port import Alarm, ControllerStatus, Node, Run, UnfitJob

# Rounds follow each other within seconds; silence this long means that nobody makes any.
_SILENT = timedelta(minutes=5)
# Nothing is decided by the controller's clock, but people compare its logs with ours.
_SKEWED_SECONDS = 60.0
_NODES = 200
_JOBS = 50


def alarms(now: datetime) -> tuple[Alarm, ...]:
    """One query."""
    controller = _controller()
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


def controller_status() -> ControllerStatus | None:
    """Three queries; None before the controller was asked for the first time."""
    row = _controller()
    if row is None:
        return None
    jobs = JenkinsJob.objects.exclude(problem="", edited_at=None)[:_JOBS]
    return ControllerStatus(
        url=without_credentials(row.url),
        version=row.version,
        answered_at=row.answered_at,
        round_at=row.round_at,
        round_seconds=row.round_seconds,
        round_requests=row.round_requests,
        jobs=tuple(UnfitJob(job.name, job.trouble, job.checked_at or job.edited_at) for job in jobs),
        nodes=tuple(_node(node) for node in JenkinsNode.objects.all()[:_NODES]),
    )


def _controller() -> JenkinsController | None:
    return JenkinsController.objects.filter(url=settings.JENKINS_URL).first()


def node(name: str) -> Node | None:
    row = JenkinsNode.objects.filter(name=name).first()
    return _node(row) if row else None


def _node(row: JenkinsNode) -> Node:
    return Node(
        name=row.name,
        online=row.online,
        connected=row.connected,
        marked_offline=row.temporarily_offline,
        offline_reason=row.offline_reason,
        held_for=row.held_for,
        busy_with=row.busy_with,
        seen_at=row.seen_at,
    )


def runs(attempts: Iterable[int], *, consoles: bool) -> dict[int, Run]:
    """One query."""
    rows = JenkinsRun.objects.filter(attempt__in=list(attempts))
    return {row.attempt_id: _run(row, consoles=consoles) for row in (rows if consoles else rows.defer("console"))}


def _run(row: JenkinsRun, *, consoles: bool) -> Run:
    steps = (
        ("taking it out of the queue", row.cancel_asked_at),
        ("stopping its build", row.stop_asked_at),
        ("disconnecting its node", row.disconnect_asked_at),
    )
    return Run(
        job=row.job,
        number=row.number,
        node=row.node,
        why=row.why,
        stuck=row.stuck,
        result=row.result,
        console=row.console if consoles else "",
        posted_at=row.posted_at,
        seen_at=row.seen_at,
        absent_since=row.absent_since,
        asked=tuple((name, at) for name, at in steps if at is not None),
    )

"""Attempts to get work done somewhere, each with what Jenkins says of it."""

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q

from server.lab.models import LATEST_FIRST, Attempt, JenkinsRun

_PARTS = ("builder", "machine", "power_cycle__machine", "jenkins_run")
_OF_STAFF = ("log", "jenkins_run__console")
# Of one piece of work; its history tells of those before.
_MOST = 100
# Of one host: more of them fail alike.
_LATEST = 5


@dataclass(frozen=True, slots=True)
class JenkinsView:
    """One attempt as Jenkins sees it; `number` is that of its build there, `why` tells why it waits in the queue."""

    job: str
    number: int | None
    node: str
    why: str
    stuck: bool
    result: str
    fault: str
    console: str
    posts: int
    seen_at: datetime | None
    absent_since: datetime | None
    asked: tuple[tuple[str, datetime], ...]


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """`where` names the builder, or the machine that is measured or switched off and on.

    `told_by` is the host as its agent named it. `log`, and the console of `jenkins`, are empty but for staff.
    """

    id: int
    key: str
    adapter: str
    where: str
    told_by: str
    agent: str
    state: str
    state_label: str
    state_since: datetime
    losing: bool
    reason: str
    progress: str
    log: str
    created_at: datetime
    arrived_at: datetime | None
    lease_until: datetime | None
    deadline_at: datetime | None
    active: bool
    jenkins: JenkinsView | None


def attempt_rows(where: Q, *, logs: bool) -> tuple[AttemptRow, ...]:
    """The last ones, oldest first; one query. `logs` are for people of the lab; nobody else's page reads them."""
    query = Attempt.objects.filter(where).select_related(*_PARTS).order_by("-id")
    query = query if logs else query.defer(*_OF_STAFF)
    return tuple(_row(row, logs=logs) for row in reversed(query[:_MOST]))


def unclaimed_rows(host: Q) -> tuple[AttemptRow, ...]:
    """Of the latest attempts on a host those that failed before its agent came, with the words of their consoles.

    For people of the lab: the host is to be mended, whatever the work was. Two queries.
    """
    latest = Attempt.objects.filter(host).order_by(LATEST_FIRST).values_list("pk", flat=True)[:_LATEST]
    return attempt_rows(Q(pk__in=list(latest), jenkins_run__console__gt=""), logs=True)


def _row(row: Attempt, *, logs: bool) -> AttemptRow:
    host = row.builder or row.machine or (row.power_cycle.machine if row.power_cycle else None)
    return AttemptRow(
        id=row.pk,
        key=row.key,
        adapter=row.adapter,
        where=host.name if host else "",
        told_by=row.host,
        agent=row.agent,
        state=row.state,
        state_label=Attempt.State(row.state).label,
        state_since=row.state_since,
        losing=row.losing,
        reason=row.reason,
        progress=row.progress,
        log=row.log if logs else "",
        created_at=row.created_at,
        arrived_at=row.arrived_at,
        lease_until=row.lease_until,
        deadline_at=row.deadline_at,
        active=row.state in Attempt.ACTIVE,
        jenkins=_jenkins(getattr(row, "jenkins_run", None), logs=logs),
    )


def _jenkins(run: JenkinsRun | None, *, logs: bool) -> JenkinsView | None:
    if run is None:
        return None
    steps = (
        ("taking it out of the queue", run.cancel_asked_at),
        ("stopping its build", run.stop_asked_at),
        ("disconnecting its node", run.disconnect_asked_at),
    )
    return JenkinsView(
        job=run.job,
        number=run.number,
        node=run.node,
        why=run.why,
        stuck=run.stuck,
        result=run.result,
        fault=run.get_fault_display() if run.fault else "",
        console=run.console if logs else "",
        posts=run.posts,
        seen_at=run.seen_at,
        absent_since=run.absent_since,
        asked=tuple((name, at) for name, at in steps if at is not None),
    )

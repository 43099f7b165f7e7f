"""How the site stands, in numbers: asked of the database, the broker and the disk when somebody looks.

Each question goes by an index to the few rows that are open, however long the history is.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connection
from django.db.models import Count, Min, Model, Q, QuerySet

from server.builds.models import Build, BuildState
from server.celery import QUEUES
from server.core import clock
from server.lab.models import Attempt, AttemptState, Canary, Session, SessionState
from server.operations.canary import the_canary
from server.operations.pulse import BROKER_ERRORS, REFUSED, Pulse, broker, counts, pulses
from server.reports.models import Delivery, DeliveryState, Report, ReportState
from server.sources.models import MailingList, Series, SeriesState, Tree
from server.sources.polls import is_late, next_try


@dataclass(frozen=True, slots=True)
class WatcherLag:
    """`behind` is the time since the watched source should have been asked; zero while it is not due."""

    kind: str
    name: str
    behind: timedelta
    failing_since: datetime | None
    late: bool


@dataclass(frozen=True, slots=True)
class OpenRows:
    """Rows of one kind in one state that is not its last: how many, and since when the oldest is in it."""

    kind: str
    state: str
    count: int
    oldest: datetime | None


@dataclass(frozen=True, slots=True)
class Leases:
    """Attempts that an agent works at: with a lease that holds, and with one that has ended."""

    held: int
    overdue: int


@dataclass(frozen=True, slots=True)
class Disk:
    free: int
    size: int


@dataclass(frozen=True, slots=True)
class DatabaseSize:
    """`values_stored` counts rows of measurements that were ever written since the server's counters began."""

    size: int
    connections: int
    most_connections: int
    values_stored: int


@dataclass(frozen=True, slots=True)
class BrokerStanding:
    """Messages that nobody has taken yet, by queue; the last runs of sweeps; what the server does when it is
    full; uploads that were refused, by code.
    """

    waiting: dict[str, int]
    pulses: Sequence[Pulse]
    eviction: str
    used_bytes: int
    refused: dict[str, int]


@dataclass(frozen=True, slots=True)
class SiteStanding:
    """`broker` is None where Redis does not answer."""

    at: datetime
    watchers: Sequence[WatcherLag]
    open: Sequence[OpenRows]
    leases: Leases
    sent_last_hour: int
    disk: Disk
    database: DatabaseSize
    broker: BrokerStanding | None
    canary: Canary | None

    def oldest(self, kind: str, *states: str) -> datetime | None:
        """Since when the oldest row of a kind waits in one of these states."""
        found = [row.oldest for row in self.open if row.kind == kind and row.state in states and row.oldest]
        return min(found, default=None)


# States that are not the last of a kind. An index of each table holds these rows alone.
OPEN_STATES: tuple[tuple[str, type[Model], tuple[str, ...]], ...] = (
    ("series", Series, (SeriesState.INCOMPLETE, SeriesState.HELD, SeriesState.READY)),
    ("build", Build, (BuildState.WANTED, BuildState.DISPATCHED, BuildState.RUNNING)),
    ("session", Session, Session.OPEN),
    ("attempt", Attempt, Attempt.ACTIVE),
    ("report", Report, (ReportState.DRAFT, ReportState.HELD, ReportState.APPROVED)),
    ("delivery", Delivery, (DeliveryState.QUEUED, DeliveryState.SENDING, DeliveryState.FAILED)),
)
# What waits for the service or the lab, not for a person.
WAITS = (
    ("series", (SeriesState.READY,)),
    ("build", (BuildState.WANTED,)),
    ("session", (SessionState.PLANNED,)),
    ("delivery", (DeliveryState.QUEUED, DeliveryState.SENDING)),
)
_HOUR = timedelta(hours=1)


def standing() -> SiteStanding:
    """Asks some twelve queries."""
    now = clock.now()
    return SiteStanding(
        at=now,
        watchers=watcher_lags(now),
        open=open_rows(),
        leases=leases(now),
        sent_last_hour=Delivery.objects.filter(state=DeliveryState.SENT, sent_at__gte=now - _HOUR).count(),
        disk=disk_room(),
        database=database_size(),
        broker=broker_standing(),
        canary=the_canary(),
    )


def watcher_lags(now: datetime) -> list[WatcherLag]:
    found = []
    for kind, model in (("tree", Tree), ("list", MailingList)):
        rows: QuerySet[Any, Any] = model._default_manager.filter(enabled=True).exclude(url="").order_by("name")
        for row in rows:
            behind = max(now - next_try(row), timedelta())
            found.append(WatcherLag(kind, row.name, behind, row.failing_since, is_late(row, now)))
    return found


def open_rows() -> list[OpenRows]:
    found = []
    for kind, model, states in OPEN_STATES:
        rows = model._default_manager.filter(state__in=states).order_by().values_list("state")
        counted = {state: (count, oldest) for state, count, oldest in rows.annotate(Count("pk"), Min("state_since"))}
        found += [OpenRows(kind, str(state), *counted.get(state, (0, None))) for state in states]
    return found


def leases(now: datetime) -> Leases:
    running = Attempt.objects.filter(state=AttemptState.RUNNING)
    told = running.aggregate(
        held=Count("pk", filter=Q(lease_until__gt=now)), overdue=Count("pk", filter=Q(lease_until__lte=now))
    )
    return Leases(**told)


def disk_room() -> Disk:
    folder = Path(settings.STATE_DIR)
    while not folder.exists():
        folder = folder.parent
    usage = shutil.disk_usage(folder)
    return Disk(free=usage.free, size=usage.total)


_SIZE = """
SELECT pg_database_size(current_database()),
    (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()),
    current_setting('max_connections')::int,
    (SELECT coalesce(sum(n_tup_ins), 0) FROM pg_stat_user_tables WHERE relname LIKE 'results_packedvalues%%')
"""


def database_size() -> DatabaseSize:
    with connection.cursor() as cursor:
        cursor.execute(_SIZE, [])
        return DatabaseSize(*map(int, cursor.fetchone()))


def broker_standing() -> BrokerStanding | None:
    """None where Redis does not answer."""
    try:
        with broker() as client:
            info = client.info("memory")
            return BrokerStanding(
                waiting={queue: int(client.llen(queue)) for queue in QUEUES},
                pulses=pulses(client),
                eviction=info.get("maxmemory_policy", ""),
                used_bytes=int(info.get("used_memory", 0)),
                refused=counts(client, REFUSED),
            )
    except BROKER_ERRORS:
        return None

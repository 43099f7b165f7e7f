"""Whether database, broker, workers and beat are there, and whether their clocks agree."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import psycopg
from celery import current_app
from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor

from server.celery import QUEUES
from server.core.database import ImpatientConnection
from server.operations.diagnosis.ailment import Ailment, ailment
from server.operations.pulse import BROKER_ERRORS, broker
from server.operations.standing import broker_standing

_SECONDS = 3
# Beyond it leases and deadlines mean something else to each host.
_SKEW = timedelta(seconds=5)
# How long a running worker takes to answer.
_PATIENCE = 2.0
# A sweep that is not heard of for so many of its intervals.
_MISSED = 6
_LEAST = timedelta(seconds=60)
_MOST_NAMED = 5


def database_ailments() -> Iterator[Ailment]:
    try:
        with ImpatientConnection.connect(
            **{**connection.get_connection_params(), "connect_timeout": _SECONDS}
        ) as fresh:
            row = fresh.execute("SELECT clock_timestamp()").fetchone()
    except psycopg.Error as error:
        yield ailment(
            "database-unreachable",
            f"PostgreSQL does not answer: {str(error).strip()}",
            "start it (systemctl start postgresql), or set TIDEMARK_DATABASE_URL right",
        )
        return
    if row is not None:
        yield from _skew("PostgreSQL's host", row[0])


def missing_migrations() -> list[str]:
    """Those that this version has and the database has not had, by app and name."""
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    return [f"{migration.app_label}.{migration.name}" for migration, _ in plan]


def migration_ailments() -> Iterator[Ailment]:
    try:
        missing = missing_migrations()
    except DatabaseError as error:
        yield ailment("migrations-missing", f"the list of migrations cannot be read: {error}", "manage.py migrate")
        return
    if missing:
        named = ", ".join(missing[:_MOST_NAMED]) + (", ..." if len(missing) > _MOST_NAMED else "")
        yield ailment("migrations-missing", f"{len(missing)} migrations are not applied: {named}", "manage.py migrate")


def broker_ailments() -> Iterator[Ailment]:
    found = broker_standing()
    if found is None:
        yield ailment(
            "broker-unreachable",
            "Redis does not answer: nothing begins before the next sweep, and no sweep does",
            "start it (systemctl start redis-server), or set TIDEMARK_REDIS_URL right",
        )
        return
    if found.eviction not in {"", "noeviction"}:
        yield ailment(
            "broker-evicts",
            f"Redis drops messages when it is full (maxmemory-policy {found.eviction})",
            "redis-cli CONFIG SET maxmemory-policy noeviction, and the same in redis.conf",
        )
    try:
        with broker() as client:
            seconds, microseconds = client.time()
    except BROKER_ERRORS:
        return
    yield from _skew("Redis' host", datetime.fromtimestamp(seconds + microseconds / 1e6, UTC))


def worker_ailments() -> Iterator[Ailment]:
    """No worker on a queue; beat that sends nothing; sweeps that run and do not end well."""
    try:
        answers = current_app.control.inspect(timeout=_PATIENCE).active_queues() or {}
    except BROKER_ERRORS:
        return
    served = {queue["name"] for queues in answers.values() for queue in queues}
    lacking = [queue for queue in QUEUES if queue not in served]
    if lacking:
        yield ailment(
            "no-worker",
            f"no worker answers for {', '.join(lacking)}",
            f"start them (systemctl start tidemark.target): celery -A workers worker -Q {','.join(lacking)}",
        )
    found = broker_standing()
    if found is None or lacking == list(QUEUES):
        return
    now = datetime.now(UTC)
    patience = max(timedelta(seconds=_MISSED * settings.SWEEP_SECONDS), _LEAST)
    newest = max((pulse.began_at for pulse in found.pulses), default=None)
    if (newest is None or now - newest > patience) and not any(found.waiting.values()):
        since = "" if newest is None else f" since {newest:%Y-%m-%d %H:%M:%S} UTC"
        yield ailment("beat-silent", f"no sweep has begun{since}", "start beat (systemctl start tidemark-beat)")
    failing = [
        pulse.name for pulse in found.pulses if pulse.well_at != pulse.began_at and now - pulse.began_at < patience
    ]
    if failing:
        yield ailment(
            "sweep-failing",
            f"the last run of {', '.join(failing)} did not end well",
            "read the worker's log: jq 'select(.task == \"NAME\" and .exception)'",
        )


def _skew(whose: str, told: datetime) -> Iterator[Ailment]:
    apart = abs(datetime.now(UTC) - told)
    if apart > _SKEW:
        yield ailment(
            "clock-off",
            f"the clocks of this host and {whose} are {apart.total_seconds():.0f} s apart",
            "timedatectl set-ntp true on both",
        )


def database_answers(found: list[Ailment]) -> bool:
    """Whether what asks the database may go on after these findings."""
    return not {one.code for one in found} & {"database-unreachable", "migrations-missing"}

"""What the site says of itself: its address and version on every page, and whether it lives and can work."""

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
from celery import current_app
from django.conf import settings
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.http import FileResponse, Http404, HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import condition, require_safe
from kombu import Connection as BrokerConnection
from kombu.exceptions import OperationalError

from server.core.database import ImpatientConnection


def site(_request: HttpRequest) -> dict[str, object]:
    return {"site_url": settings.SITE_URL, "version": settings.VERSION, "simulated": settings.SIMULATED}


def _agent_tag(_request: HttpRequest) -> str | None:
    """Of which bytes the program is, without reading them: whoever asks again is sent nothing."""
    try:
        about = Path(settings.LOCAL_AGENT).stat()
    except OSError:
        return None
    return f'"{about.st_mtime_ns:x}-{about.st_size:x}"'


@require_safe
@condition(etag_func=_agent_tag)
def agent(_request: HttpRequest) -> FileResponse:
    """The agent as one file, for whoever runs a published case himself: the one that this site's own machine runs."""
    try:
        program = Path(settings.LOCAL_AGENT).open("rb")  # noqa: SIM115 (the answer closes it)
    except OSError as error:
        raise Http404("this site hands out no agent: scripts/build_agent.py in Tidemark's sources writes it") from error
    return FileResponse(program, content_type="application/zip", as_attachment=True, filename="tidemark-agent.pyz")


_SECONDS = 3
# Threads of their own: what hangs in one of them holds no thread that answers requests.
_ASKING = ThreadPoolExecutor(4, thread_name_prefix="asking")


class _NotMigratedError(Exception):
    """The database is that of an older version."""


@cache
def _migrations() -> frozenset[tuple[str, str]]:
    """Those of this version, the last of each app: what they build on was applied before them."""
    return frozenset(MigrationLoader(None).graph.leaf_nodes())


def _ask_database(wanted: Mapping[str, Any]) -> None:
    """Connects anew: the pool would wait long for a database that is gone."""
    with ImpatientConnection.connect(**{**wanted, "connect_timeout": _SECONDS}) as fresh:
        try:
            applied = set(fresh.execute("SELECT app, name FROM django_migrations"))
        except psycopg.errors.UndefinedTable:
            applied = set()
    if not _migrations() <= applied:
        raise _NotMigratedError


def _ask_broker(wanted: Mapping[str, Any]) -> None:
    """Connects anew as well, and waits as short as for the database."""
    short = {**wanted["transport_options"], "socket_timeout": _SECONDS, "socket_connect_timeout": _SECONDS}
    with BrokerConnection(**{**wanted, "transport_options": short}) as broker:
        broker.ensure_connection(max_retries=1, interval_start=0, interval_step=0, timeout=_SECONDS)


@require_safe
@never_cache
def healthz(_request: HttpRequest) -> JsonResponse:
    """The process is up. Asks nothing of others, so that a lost database does not get the process killed."""
    return JsonResponse({"status": "ok"})


@require_safe
@never_cache
def readyz(_request: HttpRequest) -> JsonResponse:
    """Database and broker answer, and the database is that of this version; otherwise 503 and a code that says what is
    amiss.
    """
    broker = current_app.connection_for_write()
    asked = {
        "database": _ASKING.submit(_ask_database, connection.get_connection_params()),
        "broker": _ASKING.submit(
            _ask_broker,
            {"hostname": broker.as_uri(include_password=True), "transport_options": broker.transport_options},
        ),
    }
    wait(asked.values(), timeout=_SECONDS)
    checks = {name: _found(future) for name, future in asked.items()}
    codes = [f"{name}-{found}" for name, found in checks.items() if found != "ok"]
    if not codes:
        return JsonResponse({"status": "ok", "checks": checks})
    return JsonResponse({"status": "unavailable", "code": codes[0], "checks": checks}, status=503)


def _found(future: Future[None]) -> str:
    if not future.done():
        future.cancel()
        return "unreachable"
    error = future.exception()
    if isinstance(error, _NotMigratedError):
        return "not-migrated"
    if error is not None and not isinstance(error, psycopg.Error | OperationalError | OSError):
        raise error
    return "ok" if error is None else "unreachable"

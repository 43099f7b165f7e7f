"""Two questions that a supervisor asks: does the process live, and can it work."""

from collections.abc import Callable

import psycopg
from celery import current_app
from django.db import connection
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from kombu.exceptions import OperationalError

_SECONDS = 3


def _ask_database() -> None:
    """Connects anew: the pool would wait long for a database that is gone."""
    wanted = {**connection.get_connection_params(), "connect_timeout": _SECONDS}
    with psycopg.connect(**wanted) as fresh:
        fresh.execute("SELECT 1")


def _ask_broker() -> None:
    with current_app.connection_for_write() as broker:
        broker.ensure_connection(max_retries=1, interval_start=0, interval_step=0, timeout=_SECONDS)


_NEEDED: dict[str, tuple[Callable[[], None], tuple[type[Exception], ...]]] = {
    "database": (_ask_database, (psycopg.Error,)),
    "broker": (_ask_broker, (OperationalError, OSError)),
}


@require_safe
@never_cache
def healthz(_request: HttpRequest) -> JsonResponse:
    """The process is up. Asks nothing of others, so that a lost database does not get the process killed."""
    return JsonResponse({"status": "ok"})


@require_safe
@never_cache
def readyz(_request: HttpRequest) -> JsonResponse:
    """Database and broker answer; otherwise 503 and which of them does not."""
    failing = [name for name, (ask, errors) in _NEEDED.items() if not _answers(ask, errors)]
    checks = {name: "unreachable" if name in failing else "ok" for name in _NEEDED}
    status = "unavailable" if failing else "ok"
    return JsonResponse({"status": status, "checks": checks}, status=503 if failing else 200)


def _answers(ask: Callable[[], None], errors: tuple[type[Exception], ...]) -> bool:
    try:
        ask()
    except errors:
        return False
    return True

"""A database or a broker that has fallen silent, as a stopped process or a dead wire does: all has an end still."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest
from django.db import connection

from server.core.access.tokens import issue_token
from server.core.models import ApiToken
from server.lab.models import Attempt
from tests.builders import build_attempt, build_session
from tests.web.conftest import STANDSTILL, Web, database_url
from tests.web.valve import Valve


@pytest.fixture
def valves(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Valve, Valve]]:
    """On the ways to PostgreSQL and to Redis."""
    folder = tmp_path_factory.mktemp("v")
    host = str(connection.get_connection_params()["host"])
    redis = os.environ.get("TIDEMARK_REDIS_URL") or broker()
    if not (host.startswith("/") and redis.startswith("redis+socket://")):
        pytest.skip("the servers are the operator's own, and not reached through sockets")
    database = Valve(folder / ".s.PGSQL.5432", Path(host) / ".s.PGSQL.5432")
    messages = Valve(folder / "redis.sock", Path(redis.removeprefix("redis+socket://")))
    yield database, messages
    database.end()
    messages.end()


def broker() -> str:
    from django.conf import settings

    return str(settings.CELERY_BROKER_URL)


@pytest.fixture
def web(start_web: Callable[..., Web], valves: tuple[Valve, Valve]) -> Web:
    folder = valves[0].path.parent
    url = database_url().partition("?")[0]
    web = start_web(
        TIDEMARK_DATABASE_URL=f"{url}?host={folder}",
        TIDEMARK_REDIS_URL=f"redis+socket://{folder}/redis.sock",
        TIDEMARK_DATABASE_SECONDS="2",
    )
    assert web.get("/").status_code == 200
    assert web.get("/readyz").json()["checks"] == {"database": "ok", "broker": "ok"}
    return web


def test_silent_database_holds_no_page_for_ever_and_no_health_check_at_all(
    web: Web, valves: tuple[Valve, Valve]
) -> None:
    valves[0].shut()
    with httpx2.Client(base_url=web.address, timeout=2 * STANDSTILL) as client:
        assert client.get("/").status_code >= 500
        assert client.get("/healthz", timeout=5).status_code == 200
        ready = client.get("/readyz", timeout=10)
    assert (ready.status_code, ready.json()["checks"]) == (503, {"database": "unreachable", "broker": "ok"})
    valves[0].open()
    assert web.get("/").status_code == 200


def test_health_checks_answer_while_all_threads_wait_for_the_database(web: Web, valves: tuple[Valve, Valve]) -> None:
    valves[0].shut()
    clients = [web.connect() for _ in range(20)]
    for client in clients:
        client.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert web.get("/healthz", seconds=5).status_code == 200
    assert web.get("/readyz", seconds=10).status_code == 503
    for client in clients:
        client.settimeout(3 * STANDSTILL)
        assert client.recv(10).startswith(b"HTTP/1.1 5")
        client.close()


def test_silent_broker_is_named_and_holds_no_agent_up(web: Web, valves: tuple[Valve, Valve]) -> None:
    attempt = build_attempt(build_session(), state=Attempt.State.RUNNING, agent="a" * 32)
    machine = attempt.machine
    assert machine is not None
    secret = issue_token(name="m", scope=ApiToken.Scope.MACHINE, subject=machine.name)
    valves[1].shut()
    ready = web.get("/readyz", seconds=10)
    assert (ready.status_code, ready.json()["checks"]) == (503, {"database": "ok", "broker": "unreachable"})
    end = {"agent": "a" * 32, "outcome": "failed", "reason": "no disk"}
    address = f"{web.address}/api/v1/agent/attempts/{attempt.key}/end"
    for _ in range(5):
        answer = httpx2.post(address, json=end, headers={"Authorization": f"Bearer {secret}"}, timeout=10)
        assert answer.status_code == 200, answer.text

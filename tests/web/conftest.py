"""One real web process on a port of its own, with the database of the test."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import httpx2
import pytest
from django.db import connection
from pytest_django import DjangoDbBlocker

ROOT = Path(__file__).resolve().parents[2]
# A client that waits so long has found the service standing still.
STANDSTILL = 20.0


@dataclass(frozen=True)
class Web:
    """A web process that answers at `address`."""

    port: int
    process: subprocess.Popen[bytes]
    log: Path
    state: Path

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str, seconds: float = STANDSTILL) -> httpx2.Response:
        return httpx2.get(f"{self.address}{path}", timeout=seconds)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=STANDSTILL)

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")


def database_url() -> str:
    given = connection.get_connection_params()
    user = quote(str(given.get("user", "")), safe="")
    return f"postgres://{user}@/{given['dbname']}?host={quote(str(given.get('host', '')), safe='/')}"


@pytest.fixture(scope="session")
def launch(
    django_db_setup: None, django_db_blocker: DjangoDbBlocker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Web]]:
    """Start a web process with other settings, or other words for gunicorn; all end with the tests."""
    started: list[Web] = []
    with django_db_blocker.unblock():
        url = database_url()

    def start(*words: str, **settings: str) -> Web:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        state = tmp_path_factory.mktemp("web")
        environment = {**os.environ, "TIDEMARK_DATABASE_URL": url, "TIDEMARK_STATE_DIR": str(state)}
        environment |= {"TIDEMARK_WEB_PROCESSES": "1", "TIDEMARK_WEB_THREADS": "2", **settings}
        command = [sys.executable, "-m", "gunicorn", "--config", "python:server.web.process"]
        command += ["--bind", f"127.0.0.1:{port}", *words]
        log = state / "log"
        with log.open("wb") as out:
            process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=out, stderr=out)
        web = Web(port, process, log, state)
        started.append(web)
        _wait_until_it_answers(web)
        return web

    yield start
    for web in started:
        web.process.terminate()
    for web in started:
        web.process.wait()


@pytest.fixture
def start_web(launch: Callable[..., Web], transactional_db: None) -> Iterator[Callable[..., Web]]:
    """A web process for one test."""
    started: list[Web] = []

    def start(*words: str, **settings: str) -> Web:
        started.append(launch(*words, **settings))
        return started[-1]

    yield start
    for web in started:
        web.process.terminate()
        web.process.wait()


@pytest.fixture(scope="session")
def _lasting(launch: Callable[..., Web]) -> Web:
    return launch()


@pytest.fixture
def web(_lasting: Web, transactional_db: None) -> Web:
    """One web process for all tests that leave it as it is."""
    return _lasting


def _wait_until_it_answers(web: Web) -> None:
    deadline = time.monotonic() + 120
    while True:
        try:
            if web.get("/healthz").status_code == 200:
                return
        except httpx2.TransportError:
            assert web.process.poll() is None, web.said()
            assert time.monotonic() < deadline, web.said()
            time.sleep(0.1)

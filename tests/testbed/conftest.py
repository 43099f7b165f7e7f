"""What tests on machines share: the agent's program, and the service as guests reach it."""

from pathlib import Path
from typing import Any

import pytest
from pytest_django.fixtures import Settings
from pytest_django.live_server_helper import LiveServer

from scripts.build_agent import build_agent
from server.results.measurements import record_boot
from tests.testbed.site import HOST


@pytest.fixture(scope="session")
def agent_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The agent as it is installed on lab machines: one file."""
    path = tmp_path_factory.mktemp("agent") / "tidemark-agent.pyz"
    build_agent(path)
    return path


@pytest.fixture
def address(live_server: LiveServer, settings: Settings) -> str:
    """The service's address; guests see the host's loopback under a name of its own."""
    settings.ALLOWED_HOSTS = [*settings.ALLOWED_HOSTS, HOST]
    return live_server.url


@pytest.fixture
def uploads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool]]:
    """Position of each boot whose result reached the service, in their order, and whether it was stored."""
    seen: list[tuple[int, bool]] = []

    def recorded(**result: Any) -> tuple[bool, bool]:
        stored, go_on = record_boot(**result)
        seen.append((result["position"], stored))
        return stored, go_on

    monkeypatch.setattr("server.api.v1.agent.record_boot", recorded)
    return seen

"""Shared fixtures: every test gets a state directory of its own and no task leaves the process."""

from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from server.core import tasks


@pytest.fixture(autouse=True)
def state_dir(tmp_path_factory: pytest.TempPathFactory, settings: Settings) -> Path:
    path = tmp_path_factory.mktemp("state")
    settings.STATE_DIR = path
    return path


@pytest.fixture(autouse=True)
def sent_tasks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[int | str, ...]]]:
    """What was asked of workers after commit: (task name, arguments)."""
    sent: list[tuple[str, tuple[int | str, ...]]] = []
    monkeypatch.setattr(tasks, "send", lambda name, args: sent.append((name, args)))
    return sent

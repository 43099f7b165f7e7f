"""A controller with one machine, whose waits are short."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from server.lab import rounds
from server.lab.dispatch.jenkins import runs
from server.lab.models import Attempt
from tests.jenkins.adapter.looking import defined
from tests.lab.worlds import JenkinsWorld


@pytest.fixture
def world(tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[JenkinsWorld]:
    monkeypatch.setattr(runs, "_UNKNOWN_SECONDS", 0.1)
    monkeypatch.setattr(runs, "_MISSED_SECONDS", 0.3)
    monkeypatch.setattr(rounds, "_START_GRACE", timedelta())
    made = JenkinsWorld(tmp_path, settings)
    monkeypatch.setattr(rounds, "dispatcher", lambda: made.port)
    yield made
    made.close()


@pytest.fixture
def attempt(world: JenkinsWorld) -> Attempt:
    return defined(world, boot_driver="qemu")


@pytest.fixture
def rebooting(world: JenkinsWorld) -> Attempt:
    """An attempt of a machine that boots itself."""
    return defined(world, boot_driver="kexec")

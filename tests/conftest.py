"""Shared fixtures: every test gets a state directory of its own and no task leaves the process."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants
from pytest_django.fixtures import Settings

from server.core import tasks

# A change must not fail by the luck of an example, nor of a slow minute of the machine: the examples of a property
# follow from its source alone. TIDEMARK_HYPOTHESIS=explore looks for new ones.
_UNTIMED = [HealthCheck.too_slow]
hypothesis_settings.register_profile(
    "steady", derandomize=True, deadline=None, database=None, max_examples=100, suppress_health_check=_UNTIMED
)
hypothesis_settings.register_profile("explore", deadline=None, max_examples=2000, suppress_health_check=_UNTIMED)
PROFILE = os.environ.get("TIDEMARK_HYPOTHESIS", "steady")
hypothesis_settings.load_profile(PROFILE)
if PROFILE == "steady":
    # Even derandomized, examples are mixed with the numbers that stand in whatever modules happen to be loaded, so
    # that the order of the tests and every unrelated change would choose new ones.
    providers._get_local_constants = Constants


@pytest.fixture(autouse=True)
def state_dir(tmp_path_factory: pytest.TempPathFactory, settings: Settings) -> Path:
    path = tmp_path_factory.mktemp("state")
    settings.STATE_DIR = path
    # Idle machines stay idle unless a test is about what they do then.
    settings.NOISE_HOURS = 0.0
    return path


@pytest.fixture(autouse=True)
def sent_tasks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[int | str, ...]]]:
    """What was asked of workers after commit: (task name, arguments)."""
    sent: list[tuple[str, tuple[int | str, ...]]] = []
    monkeypatch.setattr(tasks, "send", lambda name, args: sent.append((name, args)))
    return sent

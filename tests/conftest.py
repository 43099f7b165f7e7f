"""Shared fixtures: every test gets a state directory of its own and no task leaves the process."""

import gc
import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from _pytest.junitxml import xml_key
from django.conf import settings as django_settings
from django.db import connection
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants
from pytest_django import DjangoDbBlocker
from pytest_django.fixtures import Settings

from server.core import tasks
from server.lab import port

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

_BEGAN = time.monotonic()
# Thousands of tests and all that they import come into being now, and nothing of it goes: to look through it again and
# again takes a third of the time.
gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that say how long they take come first: what is long and begins last is waited for by one process alone."""
    items.sort(key=_minutes, reverse=True)


def _minutes(item: pytest.Item) -> float:
    marker = item.get_closest_marker("real")
    return float(marker.kwargs.get("minutes", 0)) if marker else 0.0


def pytest_collection_finish(session: pytest.Session) -> None:
    # It stays to the end: nobody looks through it for garbage.
    gc.freeze()
    gc.enable()
    _tell_collected(session.config)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any) -> None:
    gc.enable()
    _tell_collected(node.config)


def _tell_collected(config: pytest.Config) -> None:
    """Into the report, for the run's table of times; processes that are ready later say it again."""
    report = config.stash.get(xml_key, None)
    if report is not None:
        report.global_properties[:] = [("collect", f"{time.monotonic() - _BEGAN:.1f}")]


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings_parallel_suffix: None) -> None:
    """The database of each process is a copy of the one that the run has migrated; what it lacks is migrated here."""
    connection.settings_dict["TEST"]["TEMPLATE"] = os.environ.get("TIDEMARK_TEST_TEMPLATE")


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """What a test left connected is named and ended: no database can be dropped under it. A thread that is about to
    end, as that of a live server, has its time.
    """
    yield
    name = connection.settings_dict["NAME"]
    with django_db_blocker.unblock():
        connection.close()
        connection.close_pool()  # type: ignore[attr-defined]
        with connection._nodb_cursor() as cursor:
            until = time.monotonic() + 5
            cursor.execute(_OTHERS, [name])
            while cursor.fetchall() and time.monotonic() < until:
                time.sleep(0.1)
                cursor.execute(_OTHERS, [name])
            cursor.execute(_END_OTHERS, [name])
            left = cursor.fetchall()
    assert not left, f"a test left connected: {left}"


_OTHERS = "SELECT pid FROM pg_stat_activity WHERE datname = %s AND backend_type = 'client backend'"
_END_OTHERS = _OTHERS.replace(
    "SELECT pid", "SELECT pid, application_name, state, backend_start, left(query, 99), pg_terminate_backend(pid, 5000)"
)

# The default takes a quarter of a second for each of the users that tests log in.
django_settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def _states(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pytest's own numbered folders cost a look at all that are there already, thousands in the end."""
    return tmp_path_factory.mktemp("states")


@pytest.fixture(autouse=True)
def state_dir(_states: Path, settings: Settings) -> Path:
    path = _states / str(next(_NUMBERS))
    path.mkdir()
    settings.STATE_DIR = path
    # Idle machines stay idle unless a test is about what they do then.
    settings.NOISE_HOURS = 0.0
    # One that a test before made talks to that test's controller.
    port._made.cache_clear()
    return path


@pytest.fixture(autouse=True)
def sent_tasks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[int | str, ...]]]:
    """What was asked of workers after commit: (task name, arguments)."""
    sent: list[tuple[str, tuple[int | str, ...]]] = []
    monkeypatch.setattr(tasks, "send", lambda name, args: sent.append((name, args)))
    return sent

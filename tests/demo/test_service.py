"""The site of the demo is registered however often its database goes away."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from django.core.management.base import CommandError
from django.db import OperationalError

from demo import world
from demo.processes import DemoError
from demo.world import World

WORLD = cast("World", SimpleNamespace(folder=Path("x"), linux=Path("x"), archive=SimpleNamespace(url=""), pull=False))


def register(monkeypatch: pytest.MonkeyPatch, *ends: Exception | None) -> list[str]:
    """The commands that ran, where each run of one ends as told, and all later ones well."""
    ran: list[str] = []
    left = iter(ends)

    def run(name: str, *_words: str, **_options: Any) -> None:
        ran.append(name)
        if error := next(left, None):
            raise error

    monkeypatch.setattr(world, "write_site", lambda *_words, **_options: Path("site.toml"))
    monkeypatch.setattr(world, "_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr("django.core.management.call_command", run)
    world.register_site(WORLD, "master")
    return ran


@pytest.mark.django_db
def test_database_that_goes_away_while_the_site_is_registered_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    away = OperationalError("the database system is starting up")
    assert register(monkeypatch, away, None, away) == [
        *("load_site", "load_site", "load_benchmarks", "load_site", "load_benchmarks"),
    ]


@pytest.mark.django_db
def test_site_that_is_refused_and_database_that_stays_away_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DemoError, match="the site was refused: no machine"):
        register(monkeypatch, CommandError("no machine"))
    with pytest.raises(DemoError, match="the database did not answer"):
        register(monkeypatch, *[OperationalError("gone")] * world._TRIES)

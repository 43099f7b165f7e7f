"""How soon all goes on after a strike: each lane of the system has a piece of work that began and ended after it."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from celery.exceptions import CeleryError
from django.db import DatabaseError, InterfaceError, connection

from bench.chaos.load import Load, is_ready
from bench.chaos.stage import HOSTS, Stage
from server.operations.pulse import BROKER_ERRORS, broker, pulses
from server.sources.models import Message, Revision
from workers import SWEEPS

_LOOK_SECONDS = 0.5
MOST_SECONDS = 60.0
# What is not there by then is not waited for; the run goes on.
_PATIENCE_SECONDS = 150.0

_T = TypeVar("_T")


def told(ask: Callable[[], _T]) -> _T | None:
    """The answer of the database; None while there is none."""
    try:
        return ask()
    except (DatabaseError, InterfaceError):
        connection.close()
        return None


def persist(ask: Callable[[], _T]) -> _T:
    """Ask until the database answers."""
    while (found := told(ask)) is None:
        time.sleep(_LOOK_SECONDS)
    return found


def database_answers() -> bool:
    def ask() -> bool:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            return True

    return told(ask) is True


@dataclass
class Probe:
    """What is asked of each lane after `since`, the end of a strike. Seconds are from there."""

    stage: Stage
    load: Load
    since: float
    name: str

    def lanes(self) -> Mapping[str, Callable[[], bool]]:
        mail, head = self.load.talk(self.name), self.load.push()
        return {
            "pages": lambda: all(is_ready(port) for port in (self.stage.web_port, self.stage.second_port)),
            "sweeps": self._swept,
            "hosts": lambda: all(self._heard(host) for host in HOSTS),
            "mails": lambda: told(Message.objects.filter(message_id=mail).exists) is True,
            "heads": lambda: told(Revision.objects.filter(sha=head).exists) is True,
        }

    def recovered(self) -> dict[str, float | None]:
        """Seconds of each lane; None for one that did not come back while anybody waited."""
        lanes = self.lanes()
        found: dict[str, float | None] = {}
        while len(found) < len(lanes) and time.time() - self.since < _PATIENCE_SECONDS:
            for name, is_back in lanes.items():
                if name not in found and is_back():
                    found[name] = time.time() - self.since
            time.sleep(_LOOK_SECONDS)
        return {name: found.get(name) for name in lanes}

    def _swept(self) -> bool:
        try:
            with broker() as client:
                well = {pulse.name: pulse.well_at for pulse in pulses(client)}
        except (*BROKER_ERRORS, CeleryError):
            return False
        return all((at := well.get(name)) is not None and at.timestamp() > self.since for name in SWEEPS)

    def _heard(self, host: str) -> bool:
        journal = self.stage.journal(host)
        return journal.exists() and journal.stat().st_mtime > self.since

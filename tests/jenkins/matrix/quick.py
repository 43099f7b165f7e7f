"""The service's waits, shortened: minutes become seconds, and which one is longer than which stays."""

import importlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any

LEASE_SECONDS = 3
TIMEOUT_SECONDS = 1.5
_JENKINS = "server.lab.dispatch.jenkins"
_CHANGES: tuple[tuple[str, str, Any], ...] = (
    ("server.lab.rounds", "_START_GRACE", timedelta(seconds=1)),
    ("server.lab.rounds", "_SILENT_LEASES", 3),
    ("server.lab.rounds", "_AWAY_LEASES", 2),
    ("server.lab.work", "_TAKE_WITHIN", timedelta(seconds=4)),
    ("server.lab.work", "_CLAIM_WITHIN", timedelta(seconds=20)),
    ("server.lab.sweep", "RETURN_WITHIN", timedelta(seconds=3)),
    ("server.lab.sweep", "BACK_AFTER_POWER_CYCLE", timedelta(seconds=6)),
    ("server.lab.scheduling.reader", "LONGEST_WAIT_SECONDS", 0.5),
    # These bound how long a round may take, for the controller's sake: here they would only make the work come later.
    (f"{_JENKINS}.adapter", "_STEPS_SECONDS", 3.0),
    ("server.lab.dispatch.jenkins.controller", "_SECONDS", 3.0),
    ("server.lab.dispatch.jenkins.runs", "_UNKNOWN_SECONDS", 0.6),
    ("server.lab.dispatch.jenkins.runs", "_MISSED_SECONDS", 2.0),
    # Longer than agents are frozen here: a builder that was cut off is in quarantine until a person has looked at it.
    ("server.lab.dispatch.jenkins.adapter", "_STOP_PATIENCE", timedelta(seconds=6)),
    ("server.lab.dispatch.jenkins.http", "_INTERVAL", timedelta(seconds=1 / 200)),
    ("server.lab.dispatch.jenkins.http", "_ROOM", timedelta(seconds=50 / 200)),
)


def quicken(change: Callable[[object, str, Any], None] = setattr) -> None:
    """Shorten them in this process. A name that is not there any more is an error, so that none is missed."""
    for module, name, value in _CHANGES:
        found = importlib.import_module(module)
        if not hasattr(found, name):
            raise AttributeError(f"{module}.{name}")
        change(found, name, value)

"""The service inside this process: web and worker at once, with a dispatcher and files of its own."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.conf import settings

from bench.replay_dispatcher import OurDispatcher
from bench.replay_worker import Worker
from server.core import tasks
from server.lab.dispatch import choosing

# The replay's own A/A trials are all there are; the fleet works at one thing after the other anyway.
_SETTINGS = {"DISPATCHER": "local", "LOCAL_SLOTS": 1, "NOISE_HOURS": 0, "STATE_DIR": None, "LEASE_SECONDS": 3600}


@contextmanager
def service() -> Iterator[tuple[Worker, OurDispatcher]]:
    """The process works as web and worker at once, with files of its own; everything is put back afterwards."""
    worker, port = Worker(), OurDispatcher()
    table: Any = vars(choosing)
    kept = {name: getattr(settings, name, None) for name in _SETTINGS}
    sender, adapter = tasks.send, table["_ADAPTERS"]["local"]
    with tempfile.TemporaryDirectory(prefix="tidemark-replay-") as folder:
        tasks.send = worker.send
        table["_ADAPTERS"]["local"] = lambda: port
        table["_made"].cache_clear()
        for name, value in {**_SETTINGS, "STATE_DIR": Path(folder)}.items():
            setattr(settings, name, value)
        try:
            yield worker, port
        finally:
            tasks.send = sender
            table["_ADAPTERS"]["local"] = adapter
            table["_made"].cache_clear()
            for name, value in kept.items():
                setattr(settings, name, value)

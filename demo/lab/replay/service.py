"""The service inside this process: its tasks by name, its URLs, a dispatcher and files of its own."""

import importlib
import json
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from celery import current_app
from django.conf import settings
from django.test import Client

from demo.lab.replay.agents import RefusedError
from server.core import tasks
from server.lab import port as ports
from server.lab.port import Dispatcher, HostSighting, Observed, Sighting, Sightings, Work

# As the beat schedule; mails and trees come from nowhere here.
SWEEPS = ("builds.sweep", "lab.sweep", "detection.sweep", "reports.sweep")
_WORKERS = ("builds", "lab", "detection", "reports")
# More tasks than this for one question is a service that keeps itself busy.
_MOST_TASKS = 200_000


class BrokenError(Exception):
    """The service answered with an error of its own, or did not come to rest."""


class Worker:
    """What was asked of workers, done in this process: each question once, in the order in which it was asked."""

    def __init__(self) -> None:
        for queue in _WORKERS:
            importlib.import_module(f"workers.{queue}")
        self._asked: dict[tuple[str, tuple[int | str, ...]], None] = {}
        self.done = 0
        self.failures: Counter[str] = Counter()
        self.last_failure = ""

    def send(self, name: str, arguments: tuple[int | str, ...]) -> None:
        self._asked.setdefault((name, arguments))

    def work(self) -> bool:
        """Everything that was asked for; False when there was nothing."""
        before = self.done
        while self._asked:
            name, arguments = next(iter(self._asked))
            del self._asked[name, arguments]
            try:
                current_app.tasks[name](*arguments)
            except Exception as error:  # noqa: BLE001 (a worker lives on as well; a sweep asks again)
                self.failures[f"{name}: {type(error).__name__}: {error}"] += 1
                self.last_failure = traceback.format_exc()
            self.done += 1
            if self.done - before > _MOST_TASKS:
                raise BrokenError(f"{name}{arguments} and others are asked for again and again")
        return self.done > before


@dataclass
class OurDispatcher(Dispatcher):
    """What was submitted waits in `waiting` until the replay lets its agent do it. Named as the one it replaces."""

    name = "local"
    about = "the replay itself"
    is_local = True
    slots = 1
    waiting: dict[str, Work] = field(default_factory=dict)

    def submit(self, work: Work) -> None:
        self.waiting.setdefault(work.key, work)

    def look(self, works: Sequence[Work]) -> Sightings:
        known = {key: Sighting(Observed.ALIVE) for key in self.waiting}
        ended = Sighting(Observed.ENDED)
        return Sightings(
            works={work.key: known.get(work.key, ended) for work in works},
            hosts={work.host: HostSighting(connected=True) for work in works},
        )

    def cancel(self, work: Work) -> bool:
        self.waiting.pop(work.key, None)
        return True

    def hold(self, hosts: Mapping[str, str]) -> frozenset[str]:
        return frozenset(hosts)


# The replay's own A/A trials are all there are; the fleet works at one thing after the other anyway.
_SETTINGS = {"DISPATCHER": "local", "LOCAL_SLOTS": 1, "NOISE_HOURS": 0, "STATE_DIR": None, "LEASE_SECONDS": 3600}


@contextmanager
def service(state: Path | None = None) -> Iterator[tuple[Worker, OurDispatcher]]:
    """The process works as web and worker at once; everything is put back afterwards.

    Its files are in `state`, or, without it, in a folder of its own that goes with it.
    """
    worker, port = Worker(), OurDispatcher()
    kept = {name: getattr(settings, name, None) for name in _SETTINGS}
    table: Any = vars(ports)
    sender, made = tasks.send, table["_made"]
    with tempfile.TemporaryDirectory(prefix="tidemark-replay-") as folder:
        tasks.send = worker.send
        table["_made"] = lambda _name, _thread: port
        for name, value in {**_SETTINGS, "STATE_DIR": state or Path(folder)}.items():
            setattr(settings, name, value)
        try:
            yield worker, port
        finally:
            tasks.send = sender
            table["_made"] = made
            for name, value in kept.items():
                setattr(settings, name, value)


_JSON, _BYTES = "application/json", "application/octet-stream"
_REFUSED, _BROKEN = 400, 500


class InProcess:
    """Agents' calls by Django's own test client: middleware, authentication, forms and views are the real ones."""

    def __init__(self, token: str) -> None:
        # Errors of views come as answers, as a server would give them.
        self._client = Client(raise_request_exception=True, SERVER_NAME="127.0.0.1")
        self._headers = {"Authorization": f"Bearer {token}"}

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        answer = self._client.post(f"/api/v1/agent/{path}", json.dumps(body), content_type=_JSON, headers=self._headers)
        told: dict[str, Any] = json.loads(self._checked(path, answer.status_code, answer.content))
        return told

    def put(self, sha256: str, content: bytes) -> None:
        path = f"artifacts/{sha256}"
        answer = self._client.put(f"/api/v1/agent/{path}", content, content_type=_BYTES, headers=self._headers)
        self._checked(path, answer.status_code, answer.content)

    def get(self, sha256: str) -> bytes:
        path = f"artifacts/{sha256}"
        answer: Any = self._client.get(f"/api/v1/agent/{path}", headers=self._headers)
        content = answer.getvalue() if answer.streaming else answer.content
        return self._checked(path, answer.status_code, content)

    @staticmethod
    def _checked(path: str, status: int, content: bytes) -> bytes:
        if status >= _BROKEN:
            raise BrokenError(f"{path}: {status} {content[:500]!r}")
        if status >= _REFUSED:
            raise RefusedError(f"{path}: {status} {content[:500]!r}")
        return content

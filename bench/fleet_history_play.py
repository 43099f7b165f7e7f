"""The service in one process: its messages are delivered here, its sweeps run here, and its time is set here."""

import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from django.utils import timezone

from bench.fleet_history_hosts import Hosts
from server.celery import app
from server.core import tasks
from workers import builds, detection

# Their tasks are known when they are imported.
WORKERS = (builds, detection)
SWEEPS = ("builds.sweep", "detection.sweep")
# What the hosts do themselves, and what nobody here waits for.
_NOT_HERE = ("lab.", "reports.", "sources.", "upkeep.")
# So many rounds of messages without end are a defect, not work.
_MOST_ROUNDS = 400

Task = tuple[str, tuple[int | str, ...]]


class Player:
    """Delivers what was sent until nothing is left to do; `failed` counts the tasks that did, with their errors."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        # Kept in their order; one that is there already is not needed twice.
        self._waiting: dict[Task, None] = {}
        self.failed = Counter[tuple[str, str]]()
        tasks.send = self._send

    def _send(self, name: str, arguments: tuple[int | str, ...]) -> None:
        if not name.startswith(_NOT_HERE):
            self._waiting[name, arguments] = None

    def run(self) -> None:
        """Everything that can be done now. Raises RuntimeError where it does not come to rest."""
        swept = False
        for _ in range(_MOST_ROUNDS):
            self._deliver()
            if self._hosts.build_all() + self._hosts.measure_all():
                swept = False
            elif swept:
                return
            else:
                # What no message woke: the sweeps find it, and are harmless where there is nothing.
                swept = True
                for name in SWEEPS:
                    self._send(name, ())
        raise RuntimeError(f"not at rest after {_MOST_ROUNDS} rounds; {len(self._waiting)} messages wait")

    def _deliver(self) -> None:
        while self._waiting:
            name, arguments = next(iter(self._waiting))
            del self._waiting[name, arguments]
            try:
                app.tasks[name](*arguments)
            except Exception as error:  # noqa: BLE001 (as a worker does: one task that fails ends nothing else)
                if not self.failed[name, repr(error)]:
                    traceback.print_exc()
                self.failed[name, repr(error)] += 1


@contextmanager
def set_time() -> Iterator[Callable[[timedelta], None]]:
    """Yields what moves the service's clock on; between two moves it goes on as the real one does."""
    real, ahead = timezone.now, timedelta()

    def now() -> datetime:
        return real() + ahead

    def move(by: timedelta) -> None:
        nonlocal ahead
        ahead += by

    timezone.now = now
    try:
        yield move
    finally:
        timezone.now = real

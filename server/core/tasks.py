"""Waking workers up: tasks are sent by name, after commit, and may get lost; whose turn it is in a sweep."""

import atexit
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import structlog
from celery import current_app
from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet
from kombu.exceptions import OperationalError

from server.core import clock

log = structlog.get_logger(__name__)

Sender = Callable[[str, tuple[int | str, ...]], None]

# Wake-ups that a silent broker may make wait; equal ones count once.
_MOST_WAITING = 1000
# Workers take these when they have nothing else to do: over Redis the larger number waits, and 0 is the usual one.
_PATIENT = {"detection.recompute": 9}
# How long the end of a process waits for those that are on their way.
_LAST_SECONDS = 2.0


class _Post:
    """Sends from a thread of its own: a broker that has fallen silent holds up no request and no task."""

    def __init__(self) -> None:
        self._forget()
        os.register_at_fork(after_in_child=self._forget)
        atexit.register(self._wait_a_little)

    def _forget(self) -> None:
        self._changed = threading.Condition()
        self._waiting: dict[tuple[str, tuple[int | str, ...]], None] = {}
        self._thread: threading.Thread | None = None
        self._sending = False

    def take(self, name: str, args: tuple[int | str, ...]) -> None:
        with self._changed:
            if len(self._waiting) >= _MOST_WAITING:
                log.warning("wake_up_lost", task=name, error="too many wait already")
                return
            self._waiting[name, args] = None
            if self._thread is None:
                self._thread = threading.Thread(target=self._send_all, name="wake-ups", daemon=True)
                self._thread.start()
            self._changed.notify()

    def _send_all(self) -> None:
        while True:
            with self._changed:
                self._sending = False
                while not self._waiting:
                    self._changed.wait()
                name, args = next(iter(self._waiting))
                del self._waiting[name, args]
                self._sending = True
            publish(name, args)

    def _wait_a_little(self) -> None:
        until = time.monotonic() + _LAST_SECONDS
        while (self._waiting or self._sending) and time.monotonic() < until:
            time.sleep(0.02)


def publish(name: str, args: tuple[int | str, ...]) -> None:
    """Hand one wake-up to the broker, now."""
    try:
        current_app.send_task(
            name, args=args, queue=name.partition(".")[0], priority=_PATIENT.get(name, 0), retry=False
        )
    except (OperationalError, OSError) as error:
        # The row that wants this work is committed: a sweep finds it.
        log.warning("wake_up_lost", task=name, error=str(error))
    except Exception:
        # The thread goes on: the next wake-up may be well.
        log.exception("wake_up_failed", task=name)


send: Sender = _Post().take


def enqueue(name: str, *args: int | str) -> None:
    """Ask for task `name` ("queue.verb") once the running transaction has committed."""
    # A lambda has the `__qualname__` that Django asks for when it logs a robust callback's failure; a partial has not.
    transaction.on_commit(lambda: send(name, args), robust=True)


def in_turn(waiting: "QuerySet[Any, Any]", most: int) -> list[Any]:
    """At most `most` rows of an ordered query: one half from its beginning, the other from a place that moves on.

    Whatever fails each time it is tried stays at the beginning, and would otherwise keep all others waiting. The place
    follows the clock, so that nothing has to be remembered between two sweeps.
    """
    found = list(waiting[: most + 1])
    if len(found) <= most:
        return found
    half = most // 2
    others = waiting.count() - half
    turn = int(clock.now().timestamp() / settings.SWEEP_SECONDS)
    begin = half + turn * half % max(others, 1)
    return [*found[:half], *waiting[begin : begin + most - half]]

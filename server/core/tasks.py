"""Waking workers up: tasks are sent by name, after commit, and may get lost without harm."""

from collections.abc import Callable

import structlog
from celery import current_app
from django.db import transaction
from kombu.exceptions import OperationalError

log = structlog.get_logger(__name__)

Sender = Callable[[str, tuple[int | str, ...]], None]


def _send(name: str, args: tuple[int | str, ...]) -> None:
    try:
        current_app.send_task(name, args=args, queue=name.partition(".")[0], retry=False)
    except (OperationalError, OSError) as error:
        # The row that wants this work is committed: a sweep finds it.
        log.warning("wake_up_lost", task=name, error=str(error))


send: Sender = _send


def enqueue(name: str, *args: int | str) -> None:
    """Ask for task `name` ("queue.verb") once the running transaction has committed."""
    # A lambda has the `__qualname__` that Django asks for when it logs a robust callback's failure; a partial has not.
    transaction.on_commit(lambda: send(name, args), robust=True)

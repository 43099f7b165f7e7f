"""A worker with tasks that its processes do not outlive: `celery -A tests.core.hungry worker`."""

import os
import signal
from datetime import timedelta

from celery import shared_task
from celery.signals import worker_process_init

import workers  # noqa: F401 (its signals and tasks)
from server.celery import app

__all__ = ["app"]


@worker_process_init.connect
def _count_at_once(**_kwargs: object) -> None:
    """Elsewhere a task that began some minutes ago may still be under way; here there is one process."""
    from server.core.access import tries

    tries._LONGEST = timedelta(0)


@shared_task(name="upkeep.eat")
def eat(megabytes: int) -> None:
    bytearray(megabytes << 20)


@shared_task(name="upkeep.die")
def die(_number: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)

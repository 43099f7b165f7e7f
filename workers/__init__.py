"""What beat sends and how often. Each entry is a sweep: it finds what a lost message left, and is harmless twice."""

import gc
import logging.config
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import django
import structlog
from celery import Task
from celery.fixups.django import DjangoFixup
from celery.signals import (
    beat_init,
    celeryd_after_setup,
    celeryd_init,
    heartbeat_sent,
    setup_logging,
    task_prerun,
    worker_before_create_process,
    worker_init,
    worker_process_init,
)
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from server.celery import QUEUES, app
from server.core.database import refuse_unknown_pooler
from server.core.files import keep_from_others
from server.core.programs.sandbox import bound_memory
from server.operations.pulse import noted

SWEEPS = (
    "sources.poll_trees",
    "sources.poll_lists",
    "sources.sweep",
    "builds.sweep",
    "lab.sweep",
    "detection.sweep",
    "reports.sweep",
)


# What beat sends; each run leaves word of itself.
PULSES = frozenset({*SWEEPS, "upkeep.clean", "upkeep.canary", "reports.digests"})


def beat_schedule(seconds: float) -> dict[str, dict[str, Any]]:
    """Celery's beat_schedule with a look every `seconds`; a message nobody took expires before the next but two."""
    entries = {
        name: {"task": name, "schedule": seconds, "options": {"queue": name.split(".")[0], "expires": 3 * seconds}}
        for name in SWEEPS
    }
    entries["upkeep.clean"] = {"task": "upkeep.clean", "schedule": 3600.0, "options": {"queue": "upkeep"}}
    # It looks at what takes hours; that it is overdue is told without it, too.
    entries["upkeep.canary"] = {
        "task": "upkeep.canary",
        "schedule": 300.0,
        "options": {"queue": "upkeep", "expires": 900},
    }
    entries["reports.digests"] = {"task": "reports.digests", "schedule": 3600.0, "options": {"queue": "reports"}}
    return entries


# A task is stopped after CELERY_TASK_SOFT_TIME_LIMIT; what it asked of the database must not go on without it.
os.environ.setdefault("TIDEMARK_DATABASE_SECONDS", "240")
app.conf.task_routes = {f"{queue}.*": {"queue": queue} for queue in QUEUES}
app.conf.beat_schedule = beat_schedule(settings.SWEEP_SECONDS)


# Under a lock one knows sooner that the last process is dead.
_COUNT_BY_THEMSELVES = frozenset({"detection.look", "detection.recompute"})


class CountedTask(Task):  # type: ignore[type-arg]  # of whatever arguments
    """A task about some row is given up when it ends its process again and again; sweeps, which have none, go on.

    None ends with MemoryError: Celery would end the whole worker for it.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from server.core.access.tries import bounded, counted  # noqa: PLC0415 (models exist only when Django is set up)

        if self.name in PULSES and not args:
            with noted(self.name), bounded(self.name):
                return super().__call__(*args, **kwargs)
        key = " ".join(map(str, (self.name, *args)))
        if not args or self.name in _COUNT_BY_THEMSELVES:
            with bounded(key):
                return super().__call__(*args, **kwargs)
        with counted(key) as may_begin:
            return super().__call__(*args, **kwargs) if may_begin else None


TASKS = "workers:CountedTask"
app.task_cls = TASKS


@setup_logging.connect
def _log_as_the_service_does(**_kwargs: Any) -> None:
    logging.config.dictConfig(settings.LOGGING)


@celeryd_init.connect
def _become_worker(**_kwargs: Any) -> None:
    """Django's models and the tasks, only here: beat sends names, and has no use for what stands behind them."""
    DjangoFixup(app).install()
    # Which named a class of its own.
    app.task_cls = TASKS
    # Without its checks: they read every page and every answer of the API, which no worker shows.
    django.setup()
    load_tasks()


def load_tasks() -> None:
    for queue in QUEUES:
        app.loader.import_task_module(f"workers.{queue}")


@celeryd_init.connect
@beat_init.connect
def _keep_files_from_others(**_kwargs: Any) -> None:
    keep_from_others()


@worker_before_create_process.connect
def _share_memory(**_kwargs: Any) -> None:
    """What a child finds stays one with its parent's: looking through it for rubbish would copy every page of it."""
    gc.collect()
    gc.freeze()


@worker_process_init.connect
def _bound_memory(**_kwargs: Any) -> None:
    bound_memory(settings.WORKER_MEMORY_MB)


@celeryd_after_setup.connect
def _refuse_without_walls(instance: Any, **_kwargs: Any) -> None:
    """End at once, and say why, where strangers' patches and builds could not be shut off from this host."""
    from server.core.errors import DomainError  # noqa: PLC0415 (models exist only when Celery has set Django up)
    from server.core.programs.sandbox import require_sandbox  # noqa: PLC0415
    from server.lab.dispatch.local import require_walls  # noqa: PLC0415

    queues = set(instance.app.amqp.queues.consume_from)
    try:
        if "sources" in queues and settings.APPLY_SANDBOX != "none":
            require_sandbox()
        if "lab" in queues:
            require_walls()
    except DomainError as error:
        # Celery goes on after any other exception here.
        raise SystemExit(f"this worker does not start: {error.message}") from error


@celeryd_after_setup.connect
def _load_statistics(instance: Any, **_kwargs: Any) -> None:
    if "detection" in instance.app.amqp.queues.consume_from:
        from server.stats.functions import load_usual  # noqa: PLC0415 (beat counts nothing)

        load_usual()


@worker_init.connect
@beat_init.connect
def _look_at_the_database(**_kwargs: Any) -> None:
    try:
        refuse_unknown_pooler()
    except ImproperlyConfigured as error:
        # Celery logs every other error of a signal, and goes on.
        raise SystemExit(str(error)) from error


@heartbeat_sent.connect
def _tell_supervisor(**_kwargs: Any) -> None:
    """Every two seconds by the loop that takes messages, once Redis has taken it: cheaper to ask than `inspect`."""
    if settings.ALIVE_FILE:
        Path(settings.ALIVE_FILE).touch()


@task_prerun.connect
def _bind_task(task_id: str, task: Any, args: Sequence[Any] = (), **_kwargs: Any) -> None:
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(task_id=task_id, task=task.name)
    if args:
        # The row that it is about.
        structlog.contextvars.bind_contextvars(about=args[0])

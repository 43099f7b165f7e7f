"""Celery workers: one thin module for each queue. `celery -A workers worker -Q sources,builds,...`"""

import logging.config
from typing import Any

import structlog
from celery.signals import setup_logging, task_prerun
from django.conf import settings

from server.celery import QUEUES, app
from workers.schedule import beat_schedule

app.conf.imports = tuple(f"workers.{queue}" for queue in QUEUES)
app.conf.task_routes = {f"{queue}.*": {"queue": queue} for queue in QUEUES}
app.conf.beat_schedule = beat_schedule(settings.SWEEP_SECONDS)


@setup_logging.connect
def _log_as_the_service_does(**_kwargs: Any) -> None:
    logging.config.dictConfig(settings.LOGGING)


@task_prerun.connect
def _bind_task(task_id: str, task: Any, **_kwargs: Any) -> None:
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(task_id=task_id, task=task.name)

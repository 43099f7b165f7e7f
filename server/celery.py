"""The Celery application object only; the tasks live in `workers`."""

import os

from celery import Celery
from kombu import Queue

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "server.settings")

# Declared here, not in `workers`: whoever sends a task by name must know the queues, and the web sends too.
QUEUES = ("sources", "builds", "lab", "detection", "reports", "upkeep")

# What Celery has for Django is for workers, which take it up themselves: beat only sends names, and needs no models.
app = Celery("tidemark", fixups=[])
# The current one in every thread.
app.set_default()
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.task_queues = [Queue(queue) for queue in QUEUES]
app.conf.task_default_queue = "upkeep"

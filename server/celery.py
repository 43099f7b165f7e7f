"""The Celery application object only; the tasks live in `workers`."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "server.settings")

app = Celery("tidemark")
app.config_from_object("django.conf:settings", namespace="CELERY")

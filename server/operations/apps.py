from typing import Any

from django.apps import AppConfig
from django.db import connections
from django.db.models.signals import post_migrate, pre_migrate

# A migration that waits for a lock makes all that come after it wait as well: it fails, and is run again.
LOCK_TIMEOUT = "5s"


class OperationsConfig(AppConfig):
    name = "server.operations"
    label = "operations"

    def ready(self) -> None:
        # Told for each app that has models, which this one has not.
        pre_migrate.connect(_wait_shortly)
        post_migrate.connect(_wait_as_before)


def _wait_shortly(using: str, **_kwargs: Any) -> None:
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT set_config('lock_timeout', %s, false)", [LOCK_TIMEOUT])


def _wait_as_before(using: str, **_kwargs: Any) -> None:
    with connections[using].cursor() as cursor:
        cursor.execute("RESET lock_timeout")

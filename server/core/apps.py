from django.apps import AppConfig


class CoreConfig(AppConfig):
    name = "server.core"
    label = "core"

    def ready(self) -> None:
        # Makes the configured Celery app the current one, so that every process can send tasks by name.
        import server.celery  # noqa: F401, PLC0415

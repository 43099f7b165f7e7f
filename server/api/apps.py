from django.apps import AppConfig


class ApiConfig(AppConfig):
    name = "server.api"
    label = "api"

    def ready(self) -> None:
        # drf-spectacular finds extensions among the classes that are loaded.
        import server.api.schema  # noqa: F401, PLC0415

from django.apps import AppConfig


class ReportsConfig(AppConfig):
    name = "server.reports"
    label = "reports"

    def ready(self) -> None:
        # Makes its check of the site's keys known.
        import server.reports.sending.signature  # noqa: F401, PLC0415

from collections.abc import Collection

from django.apps import AppConfig
from django.db.models import Q


class ResultsConfig(AppConfig):
    name = "server.results"
    label = "results"

    def ready(self) -> None:
        # What reads models cannot be read before here.
        from server.builds.expiry import OTHERS  # noqa: PLC0415

        parts = self.get_model("ArchivePart")

        def named(names: Collection[str]) -> set[str]:
            rows = parts._default_manager.filter(Q(sha256__in=names) | Q(manifest__in=names))
            return {name for pair in rows.values_list("sha256", "manifest") for name in pair}

        OTHERS.append(named)

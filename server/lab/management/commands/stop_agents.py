from typing import Any

from django.core.management.base import BaseCommand

from server.lab.dispatch.local import stop_agents


class Command(BaseCommand):
    help = "Ask all agents of the local dispatcher to end; their work is planned again at the next start."

    def handle(self, *_args: Any, **_options: Any) -> None:
        self.stdout.write(f"{stop_agents()} agents stopped")

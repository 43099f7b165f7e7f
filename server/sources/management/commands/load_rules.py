from typing import Any

from django.core.management.base import BaseCommand

from server.sources.measure_rules import load_default_rules


class Command(BaseCommand):
    help = "Bring back the rules of what to measure that a new site begins with; those that are there stay as they are."

    def handle(self, *_args: Any, **_options: Any) -> None:
        self.stdout.write(f"{load_default_rules()} rules added")

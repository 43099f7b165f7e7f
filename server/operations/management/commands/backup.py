from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from server.core.errors import DomainError
from server.operations.backup import NOT_IN_IT, back_up


class Command(BaseCommand):
    help = "Write a backup of the database, as it is at one moment, and of the artifacts into an empty folder."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("folder", type=Path)

    def handle(self, *_args: Any, **options: Any) -> None:
        try:
            saved = back_up(options["folder"])
        except DomainError as error:
            raise CommandError(error.message) from error
        rows = sum(saved.tables.values())
        self.stdout.write(f"{rows} rows of {len(saved.tables)} tables, {saved.artifacts} artifacts, {saved.size} bytes")
        if saved.missing:
            self.stdout.write(f"{len(saved.missing)} artifacts are not in the store: manage.py check_artifacts")
        self.stdout.write("\n".join(["Not in it:", *(f"- {line}" for line in NOT_IN_IT)]))

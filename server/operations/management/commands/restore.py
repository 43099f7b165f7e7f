from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from server.core.errors import DomainError
from server.operations.backup import restore


class Command(BaseCommand):
    help = "Make this site the one of a backup. Stop web, workers and beat before. Ends with `recompute --check`."
    # An empty database passes no check that asks it anything.
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("folder", type=Path)
        parser.add_argument("--replace", action="store_true", help="throw away what this site holds now")
        parser.add_argument("--no-recompute", action="store_true", help="leave out the last step, which may take hours")

    def handle(self, *_args: Any, **options: Any) -> None:
        try:
            restored = restore(options["folder"], replace=options["replace"])
        except DomainError as error:
            raise CommandError(error.message) from error
        rows = sum(restored.tables.values())
        self.stdout.write(f"{rows} rows of {len(restored.tables)} tables and {restored.artifacts} artifacts are back")
        # One of an older version becomes one of this version.
        call_command("migrate", interactive=False, verbosity=0, stdout=self.stdout)
        if not options["no_recompute"]:
            call_command("recompute", "--check", stdout=self.stdout)

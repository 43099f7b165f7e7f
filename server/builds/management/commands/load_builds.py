from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from server.builds.entries import SHIPPED, load_builds
from server.core.errors import DomainError


class Command(BaseCommand):
    help = "Create the fragments, configurations and toolchains that are shipped, or that a TOML file describes."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, nargs="?", default=SHIPPED)
        parser.add_argument(
            "--replace", action="store_true", help="Set what is there already to what the file says, too."
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        try:
            loaded = load_builds(options["file"], replace=options["replace"])
        except DomainError as error:
            raise CommandError(error.message) from error
        for what, names in (("created", loaded.created), ("updated", loaded.updated), ("kept as it is", loaded.kept)):
            if names:
                self.stdout.write(f"{what}: {', '.join(names)}")
        for remark in loaded.remarks:
            self.stdout.write(f"note: {remark}")

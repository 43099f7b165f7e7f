from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from server.core.errors import DomainError
from server.sources.trees.entries import load_trees


class Command(BaseCommand):
    help = "Create or update the trees that a TOML file describes (docs/examples/trees.toml); others stay as they are."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path)

    def handle(self, *_args: Any, **options: Any) -> None:
        try:
            loaded = load_trees(options["file"])
        except DomainError as error:
            raise CommandError(error.message) from error
        for what, names in (("created", loaded.created), ("updated", loaded.updated)):
            if names:
                self.stdout.write(f"{what}: {', '.join(names)}")
        self.stdout.write(f"{len(loaded.created)} trees created, {len(loaded.updated)} updated")

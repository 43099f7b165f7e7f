from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from server.core.errors import DomainError
from server.sources.trees.fetching import fetch_tree, find_tree


class Command(BaseCommand):
    help = "Fetch a tree into the mirror without a time limit, as its first fetch may need."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name")

    def handle(self, *_args: Any, **options: Any) -> None:
        try:
            tree = find_tree(options["name"])
        except DomainError as error:
            raise CommandError(error.message) from error
        moved = fetch_tree(tree=tree, timeout=None)
        if tree.last_error:
            raise CommandError(tree.last_error)
        for head in moved:
            self.stdout.write(f"{head}")
        self.stdout.write(f"{len(moved)} branches moved")

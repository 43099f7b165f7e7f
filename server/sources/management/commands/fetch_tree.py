import time
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from server.core.errors import DomainError
from server.sources.trees.fetch import fetch_if_free, find_tree

_BUSY_SECONDS = 0.5


class Command(BaseCommand):
    help = "Fetch a tree into the mirror without a time limit, as its first fetch may need."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name")

    def handle(self, *_args: Any, **options: Any) -> None:
        try:
            tree = find_tree(options["name"])
        except DomainError as error:
            raise CommandError(error.message) from error
        waiting = False
        while (moved := fetch_if_free(tree=tree, timeout=None)) is None:
            if not waiting:
                self.stderr.write(f"another process fetches {tree.name}; waiting for its end")
            waiting = True
            time.sleep(_BUSY_SECONDS)
        if tree.last_error:
            raise CommandError(tree.last_error)
        for head in moved:
            self.stdout.write(f"{head}")
        self.stdout.write(f"{len(moved)} branches moved")

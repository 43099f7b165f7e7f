import json
import os
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import OperationalError

from server.core.middleware import for_terminal
from server.sources.series.requests import all_series_json, holding


class Command(BaseCommand):
    help = "Print series, the oldest first: one line each, or one JSON object each with all that is known."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="one JSON object in each line (docs/series.md)")
        parser.add_argument("--message-id", help="only series that hold this mail", metavar="ID")

    def handle(self, *_args: Any, **options: Any) -> None:
        try:
            self._print(options)
        except OperationalError as error:
            raise CommandError(f"the database cannot be asked: {error}") from error

    def _print(self, options: dict[str, Any]) -> None:
        wanted = None
        if options["message_id"] is not None:
            wanted = holding(options["message_id"])
            if not wanted.exists():
                raise CommandError(f"no series holds <{options['message_id'].strip().strip('<>')}>")
        try:
            for document in all_series_json(wanted):
                self.stdout.write(json.dumps(document) if options["json"] else for_terminal(_line(document)))
        except BrokenPipeError:
            # Whoever reads has seen enough; Python must not write what is left at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _line(document: dict[str, Any]) -> str:
    mark = f"v{document['version']}, {len(document['patches'])} of {document['total']} patches"
    why = f": {document['reason']}" if document["state"] == "held" else ""
    return f"{document['received']} {document['state']} <{document['message_id']}> {document['subject']} ({mark}){why}"

import getpass
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from server.core.errors import DomainError
from server.core.visible_text import for_terminal
from server.sources.series.services import approve_series, find_series


class Command(BaseCommand):
    help = "Let a held series run: building it is running its author's code."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("message_id", help="of the cover letter or any patch")
        parser.add_argument("--reason", required=True, help="why, for the history")

    def handle(self, *_args: Any, **options: Any) -> None:
        why = options["reason"].strip()
        if not why:
            raise CommandError("--reason: say why it may run")
        reason = f"approved by {getpass.getuser()} on the command line: {why}"
        try:
            series = find_series(options["message_id"])
            approve_series(series=series, reason=reason)
        except DomainError as error:
            raise CommandError(error.message) from error
        self.stdout.write(for_terminal(f"series {series.pk} is {series.State(series.state).label}: {series}"))

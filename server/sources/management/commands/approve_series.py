import getpass
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from server.core.errors import DomainError
from server.core.middleware import for_terminal
from server.sources.models import Series
from server.sources.series.requests import approve_series, find_series, line_of, lines_to_read, not_held, posting_mark

_MOST_NAMED = 50


class Command(BaseCommand):
    help = "Let a held series run: building it is running its author's code. Without --seen it says what to read."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("series", help="its number, or a Message-ID that no other series holds")
        parser.add_argument(
            "--seen", metavar="MARK", help="what the command said without it: of the mails you have read"
        )
        parser.add_argument("--reason", help="why, for the history")

    def handle(self, *_args: Any, **options: Any) -> None:
        try:
            series = self._found(options["series"])
            if options["seen"] is None:
                self._show(series, asked_more=options["reason"] is not None)
                return
            why = (options["reason"] or "").strip()
            if not why:
                raise CommandError("--reason: say why it may run")
            reason = f"approved by {getpass.getuser()} on the command line: {why}"
            if not approve_series(series=series, reason=reason, seen=options["seen"]):
                raise not_held(series)
        except DomainError as error:
            raise CommandError(for_terminal(error.message)) from error
        self._say(f"series {series.pk} is {series.State(series.state).label}: {series}")

    def _found(self, name: str) -> Series:
        """Anybody can send a mail with somebody else's Message-ID: which series is meant then, a person has to say."""
        found = find_series(name)
        if len(found) == 1:
            return found[0]
        for series in found[:_MOST_NAMED]:
            self._say(line_of(series))
        raise CommandError(for_terminal(f"{len(found)} series hold {name.strip()}: name one of them by its number"))

    def _show(self, series: Series, *, asked_more: bool) -> None:
        # First: what comes in between is not in the mark, and so cannot be approved.
        mark = posting_mark(series)
        for line in lines_to_read(series):
            self._say(line)
        self._say(f"to let it run, once you have read its mails: approve_series {series.pk} --seen {mark} --reason WHY")
        if asked_more:
            raise CommandError("nothing is approved yet: read its mails, and say --seen with the mark above")

    def _say(self, line: str) -> None:
        self.stdout.write(for_terminal(line))

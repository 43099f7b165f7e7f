from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from server.core.errors import DomainError
from server.sources.lists import find_list, read_list


class Command(BaseCommand):
    help = "Fetch and read a whole list archive without a time limit, as its first reading may need."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name")

    def handle(self, *_args: Any, **options: Any) -> None:
        try:
            mailing_list = find_list(options["name"])
        except DomainError as error:
            raise CommandError(error.message) from error
        result = read_list(mailing_list=mailing_list, limit=None, timeout=None)
        if mailing_list.last_error:
            raise CommandError(mailing_list.last_error)
        self.stdout.write(f"{result.commits} commits read")

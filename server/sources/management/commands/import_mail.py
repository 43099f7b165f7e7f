import sys
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from server.core.errors import DomainError
from server.sources.imports import mails_in, mails_of
from server.sources.lists import find_list
from server.sources.messages import store_message


class Command(BaseCommand):
    help = "Store mails of an mbox, a maildir, a folder of .eml files, one mail, or standard input (-)."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("list")
        parser.add_argument("source")

    def handle(self, *_args: Any, **options: Any) -> None:
        source = options["source"]
        count = 0
        try:
            mailing_list = find_list(options["list"])
            for raw in mails_in(sys.stdin.buffer) if source == "-" else mails_of(Path(source)):
                store_message(mailing_list=mailing_list, raw=raw)
                count += 1
        except (DomainError, OSError) as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"{count} mails stored")

from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.core.validators import validate_email

from server.reports.outbox import opt_out


class Command(BaseCommand):
    help = "Never again write to an address."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("address")

    def handle(self, *_args: Any, **options: Any) -> None:
        try:
            validate_email(options["address"].strip())
        except ValidationError as error:
            raise CommandError(f"{options['address']} is no mail address") from error
        self.stdout.write(f"no more mails to {opt_out(address=options['address']).address}")

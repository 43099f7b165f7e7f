from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from server.core.errors import DomainError
from server.reports.moderation import approve_report


class Command(BaseCommand):
    help = "Release a report that waits for moderation; it is put into the outbox."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("report_id", type=int)

    def handle(self, *_args: Any, **options: Any) -> None:
        try:
            report = approve_report(report_id=options["report_id"])
        except DomainError as error:
            raise CommandError(error.message) from error
        self.stdout.write(f"report {report.pk} is {report.state}: <{report.delivery.message_id}>")

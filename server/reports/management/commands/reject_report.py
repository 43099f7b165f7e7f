from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from server.core.errors import DomainError
from server.reports.moderation import reject_report


class Command(BaseCommand):
    help = "Decide that a report is not sent."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("report_id", type=int)
        parser.add_argument("reason")

    def handle(self, *_args: Any, **options: Any) -> None:
        try:
            report = reject_report(report_id=options["report_id"], reason=options["reason"])
        except DomainError as error:
            raise CommandError(error.message) from error
        self.stdout.write(f"report {report.pk} is {report.state}")

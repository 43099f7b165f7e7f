from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db.models import Q

from server.reports.models import Report, ReportState


class Command(BaseCommand):
    help = "Print the report on a series, as it is or would be mailed."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("message_id", help="of the series' first mail, or of the report itself")

    def handle(self, *_args: Any, **options: Any) -> None:
        message_id = options["message_id"].strip().strip("<>")
        found = Q(finding__series__root_message_id=message_id) | Q(delivery__message_id=message_id)
        report = Report.objects.filter(found).order_by("-id").first()
        if report is None:
            raise CommandError(f"no report on <{message_id}>")
        self.stdout.write(f"Report {report.pk}: {ReportState(report.state).label} {report.reason}".rstrip())
        delivery = getattr(report, "delivery", None)
        if delivery is not None:
            self.stdout.write(f"Message-ID: <{delivery.message_id}> ({delivery.state}) {delivery.reason}".rstrip())
        if report.state == ReportState.REFUSED:
            return
        self.stdout.write(f"Subject: {report.subject}")
        self.stdout.write(f"To: {', '.join(report.to)}")
        self.stdout.write(f"Cc: {', '.join(report.cc)}")
        self.stdout.write(f"In-Reply-To: <{report.in_reply_to}>")
        self.stdout.write(f"\n{report.body}")

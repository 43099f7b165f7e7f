from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db.models import Q

from server.reports.leaving import Outgoing, gate, outgoing, with_mails
from server.reports.models import Report


class Command(BaseCommand):
    help = "Print each mail about a finding exactly as it would leave, or left, with all headers and recipients."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("finding", help="its number, or the Message-ID of its series' first mail or of the report")

    def handle(self, *_args: Any, **options: Any) -> None:
        name = options["finding"].strip().strip("<>")
        found = Q(finding__series__root_message_id=name) | Q(delivery__message_id=name)
        reports = list(
            with_mails(Report.objects.filter(Q(finding=int(name)) if name.isdecimal() else found)).order_by("pk")
        )
        if not reports:
            raise CommandError(f"no report on {'finding ' + name if name.isdecimal() else f'<{name}>'}")
        for row in outgoing(reports, gate()):
            self._tell(row)

    def _tell(self, row: Outgoing) -> None:
        # What is no part of the mail goes elsewhere: the mail alone can be piped on.
        why = row.held or (
            "leaves with the next round of the outbox" if row.report.state == "approved" else row.state_label
        )
        told = f"mail {row.report.pk}, {row.kind_label}: {why}"
        self.stderr.write(f"{told} ({row.report.reason})" if row.report.reason else told)
        if row.letter is not None:
            self.stdout.write(f"{row.letter.head}\n\n{row.letter.body}")

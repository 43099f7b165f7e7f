"""Mails as rows of a table."""

from dataclasses import dataclass
from datetime import datetime

from django.db.models import QuerySet

from server.dashboard.selectors.links import archive_link
from server.sources.models import Message


@dataclass(frozen=True, slots=True)
class MailRow:
    id: int
    message_id: str
    subject: str
    sender: str
    kind: str
    kind_label: str
    reason: str
    mailing_list: str
    received_at: datetime
    link: str


def mail_rows(messages: "QuerySet[Message]") -> tuple[MailRow, ...]:
    """One query; what the mails hold is not read."""
    return tuple(
        MailRow(
            id=row.pk,
            message_id=row.message_id,
            subject=row.subject,
            sender=row.sender_name or row.sender_address,
            kind=row.kind,
            kind_label=Message.Kind(row.kind).label,
            reason=row.reason,
            mailing_list=row.mailing_list.name,
            received_at=row.received_at,
            link=archive_link(row.mailing_list.url, row.message_id),
        )
        for row in messages.select_related("mailing_list").defer("raw", "references")
    )

"""Commands that came by mail about a finding, and what became of each."""

from dataclasses import dataclass
from datetime import datetime

from server.detection.models import Finding
from server.reports.models import CommandState, MailCommand

_MOST = 50


@dataclass(frozen=True, slots=True)
class CommandRow:
    received_at: datetime
    message: int
    sender: str
    role: str
    text: str
    state: str
    state_label: str
    reason: str


def commands_about(finding: Finding) -> tuple[CommandRow, ...]:
    """The newest of those that answered mails about it. One query."""
    rows = MailCommand.objects.filter(delivery__report__finding=finding).order_by("-pk")[:_MOST]
    return tuple(
        CommandRow(
            received_at=row.created_at,
            message=row.message_id,
            sender=row.sender,
            role=MailCommand.Role(row.role).label if row.role else "",
            text=row.text,
            state=row.state,
            state_label=str(CommandState(row.state).label),
            reason=row.reason,
        )
        for row in rows
    )

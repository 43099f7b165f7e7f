"""Mails as rows of a table, their addresses in public archives, and versions of one posting."""

from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote, urlsplit

from django.db.models import QuerySet

from server.core.addresses import without_credentials
from server.sources.models import Message, Series


def archive_link(inbox_url: str, message_id: str) -> str:
    """Where the archive shows this mail, or nothing when the inbox has no address that a browser may open."""
    try:
        scheme = urlsplit(inbox_url).scheme
    except ValueError:
        return ""
    if scheme not in ("http", "https"):
        return ""
    return f"{without_credentials(inbox_url).rstrip('/')}/{quote(message_id, safe='@')}/"


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
        for row in messages.select_related("mailing_list").defer(*Message.LONG)
    )


# Whoever posts again and again makes as many as there are mails.
_MOST_OLDER = 20


@dataclass(frozen=True, slots=True)
class OtherVersion:
    id: int
    mark: str
    subject: str
    state: str
    state_label: str


@dataclass(frozen=True, slots=True)
class OlderVersions:
    """The newest of those that a version replaced; `unlisted` counts the others."""

    rows: tuple[OtherVersion, ...]
    unlisted: int


def version_of(series: Series) -> OtherVersion:
    return OtherVersion(series.pk, series.mark, series.subject, series.state, label_of(series))


def label_of(series: Series) -> str:
    """The state for people; a held series waits for nobody before its senders were checked."""
    if series.state == Series.State.HELD and series.checked_at is None:
        return "senders not checked yet"
    return Series.State(series.state).label


def newer_and_older(series: Series) -> tuple[OtherVersion | None, OlderVersions]:
    """What replaced `series`, and what it replaced; two queries, with `superseded_by` read already."""
    newer = series.superseded_by
    older = Series.objects.filter(superseded_by=series).order_by("-version", "-minor", "-id")
    rows = tuple(version_of(row) for row in older.defer("trailers", "prerequisites")[:_MOST_OLDER])
    unlisted = older.count() - len(rows) if len(rows) == _MOST_OLDER else 0
    return version_of(newer) if newer else None, OlderVersions(rows, unlisted)

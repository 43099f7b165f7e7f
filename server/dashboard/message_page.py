"""The page of one mail: what it says of itself, what was made of it, and the mails around it."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import QuerySet
from django.db.models.functions import Length, Substr

from server.core.middleware import for_reading
from server.dashboard.rows.postings import MailRow, OtherVersion, archive_link, mail_rows, version_of
from server.sources.mail.parser import MAX_BYTES, text_of_mail
from server.sources.models import Message
from server.sources.series.requests import series_of

# A page shows the beginning of a mail; the whole is a download.
EXCERPT = 64 * 1024
# Mails up to this size are read for their page; what a longer one says is a download, too.
_READ = 512 * 1024
_MOST_AROUND = 100
_PIECE = 2 * 1024 * 1024
# Letters of a text that are named and sent at a time.
_LETTERS = 64 * 1024


@dataclass(frozen=True, slots=True)
class MessageFacts:
    """`before` is what a deleted mail was taken for. `proved` is None while nobody has checked the sender.

    `text` is the beginning of what was read of it, encodings taken off and all parts in one: patches are applied and
    shown for approval as they stand there. None of a long mail. `excerpt` is the beginning of the mail as it arrived,
    `size` the bytes of all of it.
    """

    id: int
    mailing_list: str
    message_id: str
    in_reply_to: str
    subject: str
    sender_name: str
    sender_address: str
    sent_at: datetime | None
    received_at: datetime
    kind: str
    kind_label: str
    before: str
    reason: str
    proved: bool | None
    proof: str
    link: str
    size: int
    text: str | None
    text_size: int
    excerpt: str
    series: tuple[OtherVersion, ...]
    copies: tuple[MailRow, ...]
    thread: tuple[MailRow, ...]
    thread_size: int

    @property
    def deleted(self) -> bool:
        return self.kind == Message.Kind.DELETED

    @property
    def text_cut(self) -> bool:
        return self.text_size > EXCERPT

    @property
    def cut(self) -> bool:
        return self.size > EXCERPT


def message_facts(message_id: int) -> MessageFacts | None:
    """`message_id` is the number of the row."""
    parts = {"size": Length("raw"), "beginning": Substr("raw", 1, _READ)}
    query: Any = Message.objects.select_related("mailing_list").defer(*Message.LONG).annotate(**parts)
    row = query.filter(pk=message_id).first()
    if row is None:
        return None
    around = _around(row)
    beginning = bytes(row.beginning)
    text = text_of_mail(beginning) if row.size <= _READ else None
    return MessageFacts(
        id=row.pk,
        mailing_list=row.mailing_list.name,
        message_id=row.message_id,
        in_reply_to=row.in_reply_to,
        subject=row.subject,
        sender_name=row.sender_name,
        sender_address=row.sender_address,
        sent_at=row.sent_at,
        received_at=row.received_at,
        kind=row.kind,
        kind_label=Message.Kind(row.kind).label,
        before=Message.Kind(row.kind_before).label if row.kind_before in Message.Kind.values else "",
        reason=row.reason,
        proved=row.authentic,
        proof=row.authenticity,
        link=archive_link(row.mailing_list.url, row.message_id),
        size=row.size,
        text=None if text is None else for_reading(text[:EXCERPT]),
        text_size=len(text or ""),
        excerpt=as_text(beginning[:EXCERPT]),
        series=tuple(version_of(series) for series in series_of(row).defer("trailers")[:_MOST_AROUND]),
        copies=mail_rows(
            Message.objects.filter(message_id=row.message_id).exclude(pk=row.pk).order_by("id")[:_MOST_AROUND]
        ),
        thread=mail_rows(around.order_by("sent_at", "id")[:_MOST_AROUND]),
        thread_size=around.count(),
    )


def _around(row: Message) -> "QuerySet[Message]":
    """The thread of a mail, itself included; a mail that is not threaded yet is alone."""
    return Message.objects.filter(thread=row.thread_id) if row.thread_id else Message.objects.filter(pk=row.pk)


def as_text(raw: bytes) -> str:
    """Bytes of any kind as text for people: what is no UTF-8 stands as its numbers, NUL as a sign."""
    return raw.decode("utf-8", "backslashreplace").replace("\r\n", "\n").replace("\0", "␀")


@dataclass(frozen=True, slots=True)
class RawMail:
    """All of a row but its text, which `raw_pieces` gives; `size` in bytes."""

    pk: int
    kind: str
    reason: str
    size: int


def raw_mail(message_id: int) -> RawMail | None:
    query: Any = Message.objects.filter(pk=message_id).annotate(size=Length("raw"))
    row = query.values("pk", "kind", "reason", "size").first()
    return RawMail(**row) if row else None


def text_pieces(message_id: int) -> Iterator[bytes]:
    """All that was read of a mail, as `MessageFacts.text` begins, in UTF-8. Of 4 MB signs may be named by 32."""
    # Of a longer one nothing is read.
    beginning = Substr("raw", 1, MAX_BYTES + 1)
    query: Any = Message.objects.filter(pk=message_id).annotate(beginning=beginning)
    raw = query.values_list("beginning", flat=True).get()
    text = text_of_mail(bytes(raw))
    del raw
    for start in range(0, len(text), _LETTERS):
        yield for_reading(text[start : start + _LETTERS]).encode("utf-8", "replace")


def raw_pieces(message_id: int) -> Iterator[bytes]:
    """All that a mail holds, byte for byte. Archives may have large ones, and several readers ask for one at once."""
    start = 1
    while piece := _piece(message_id, start):
        yield piece
        start += len(piece)


def _piece(message_id: int, start: int) -> bytes:
    query: Any = Message.objects.filter(pk=message_id).annotate(piece=Substr("raw", start, _PIECE))
    return bytes(query.values_list("piece", flat=True).first() or b"")

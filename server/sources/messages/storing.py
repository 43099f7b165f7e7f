"""Storing mails: every one whole and once, with what was made of it and the thread that it belongs to."""

import hashlib
from dataclasses import dataclass, replace
from datetime import datetime

import structlog
from django.db import DataError, transaction

from server.core import clock
from server.sources.mail.parser import ParsedMail, parse_mail
from server.sources.mail.subjects import Marks
from server.sources.messages.facts import MailFacts, facts_in, kept_trailers
from server.sources.messages.joining import join_thread, lock_mail, may_change_series, names_of
from server.sources.models import MailingList, Message, Patch, Series, Thread
from server.sources.series.settling import announced_by, refuse_deleted

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Stored:
    """`new` is False where the same mail was there already."""

    message: Message
    new: bool


def blob_id(raw: bytes) -> str:
    """The id that git gives to this content, so that a mail is the same one from a file and from an archive."""
    return hashlib.sha1(b"blob %d\0" % len(raw) + raw, usedforsecurity=False).hexdigest()


@dataclass(frozen=True)
class ReadMail:
    """A mail that is read, but not stored."""

    raw: bytes
    blob: str
    received_at: datetime
    parsed: ParsedMail


def store_message(
    *, mailing_list: MailingList, raw: bytes, blob: str = "", received_at: datetime | None = None
) -> Message:
    """Store one mail, once, and join it to its thread. Never raises because of what the mail holds.

    `received_at` is when the archive took it; now, where there is no archive. Series are made of it by `group_stale`.
    """
    return keep_parsed(mailing_list=mailing_list, mail=read_mail(raw, blob=blob, received_at=received_at)).message


def read_mail(raw: bytes, *, blob: str = "", received_at: datetime | None = None) -> ReadMail:
    """Read a mail of whatever bytes; nothing is asked of the database."""
    blob, received_at = blob or blob_id(raw), received_at or clock.now()
    return ReadMail(raw, blob, received_at, parse_mail(raw, blob=blob, received_at=received_at))


def keep_parsed(*, mailing_list: MailingList, mail: ReadMail) -> Stored:
    """As `store_message` with a mail that is read already, telling also whether it is new."""
    try:
        return _kept(mailing_list, mail)
    except DataError as error:
        # One mail that no rule foresaw must not stop the list: it stays, and a person can read why.
        reason = f"the database does not take what was read of it: {str(error).splitlines()[0][:500]}"
        log.exception("message_not_storable", list=mailing_list.name, blob=mail.blob)
        nothing = ParsedMail(
            f"{mail.blob}@no-message-id.invalid", "unusable", reason, Marks(""), sent_at=mail.received_at
        )
        return _kept(mailing_list, replace(mail, parsed=nothing))


def _kept(mailing_list: MailingList, mail: ReadMail) -> Stored:
    with transaction.atomic():
        lock_mail()
        ours = Message.objects.filter(mailing_list=mailing_list, message_id=mail.parsed.message_id, blob=mail.blob)
        if known := ours.defer("raw").first():
            return Stored(known, new=False)
        message = _message(mailing_list, mail)
        names = names_of(message)
        message.thread_id = join_thread(names, stale=may_change_series(message))
        message.save(force_insert=True)
    log.info("message_stored", list=mailing_list.name, message_id=message.message_id, kind=message.kind)
    return Stored(message, new=True)


def _message(mailing_list: MailingList, mail: ReadMail) -> Message:
    parsed = mail.parsed
    return Message(
        mailing_list=mailing_list,
        message_id=parsed.message_id,
        blob=mail.blob,
        raw=mail.raw,
        kind=parsed.kind,
        reason=parsed.reason,
        subject=parsed.subject,
        sender_name=parsed.sender_name,
        sender_address=parsed.sender_address,
        sent_at=parsed.sent_at,
        received_at=mail.received_at,
        in_reply_to=parsed.in_reply_to,
        references=list(parsed.references),
        trailers=kept_trailers(parsed),
    )


@transaction.atomic
def forget_message(*, mailing_list: MailingList, blob: str) -> None:
    """The archive was asked to remove this mail: its content goes here too.

    The row stays with Message-ID and subject, so that threads and finished series still explain themselves. A series
    that has not been applied yet is refused once all its mails are there; one that has keeps its commits.
    """
    lock_mail()
    there = Message.objects.filter(mailing_list=mailing_list, blob=blob).exclude(kind=Message.Kind.DELETED)
    for message in there.defer("raw"):
        Message.objects.filter(pk=message.pk).update(
            kind=Message.Kind.DELETED, kind_before=message.kind, raw=b"", reason="deleted from the archive", trailers=[]
        )
        if may_change_series(message):
            _mark_stale(message)
        _empty_patches(message)
        refuse_deleted(message)
        log.info("message_deleted", list=mailing_list.name, message_id=message.message_id)


def _empty_patches(message: Message) -> None:
    """What its diff said goes too, where nothing was made of it."""
    nothing = MailFacts(message.sender_name, message.sender_address)
    Patch.objects.filter(message=message).exclude(series__state=Series.State.APPLIED).update(
        patch_id="", **nothing.columns
    )


@transaction.atomic
def restore_message(*, message: Message, mail: ReadMail) -> None:
    """The archive took a mail again that it had deleted: it was no spam after all.

    A series that was refused for that has its content again, and a person may approve it.
    """
    lock_mail()
    again = _message(message.mailing_list, mail)
    deleted = Message.objects.filter(pk=message.pk, kind=Message.Kind.DELETED)
    deleted.update(kind=again.kind, kind_before="", raw=again.raw, reason=again.reason, trailers=again.trailers)
    Patch.objects.filter(message=message).exclude(series__state=Series.State.APPLIED).update(
        **facts_in(mail.parsed).columns
    )
    for series in Series.objects.filter(pk__in=message.patches.values("series")) | Series.objects.filter(cover=message):
        Series.objects.filter(pk=series.pk).exclude(state=Series.State.APPLIED).update(**announced_by(series))
    _mark_stale(message)
    log.info("message_restored", list=message.mailing_list.name, message_id=message.message_id)


def _mark_stale(message: Message) -> None:
    Thread.objects.filter(messages=message.pk).update(stale=True)

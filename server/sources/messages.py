"""Storing mails: every one whole and once, with what was made of it."""

import hashlib

import structlog
from django.db import DataError, IntegrityError, transaction

from server.core import clock
from server.sources.mail.parser import ParsedMail, parse_mail
from server.sources.models import MailingList, Message, Series
from server.sources.series import assign_message

log = structlog.get_logger(__name__)


def blob_id(raw: bytes) -> str:
    """The id that git gives to this content, so that a mail is the same one from a file and from an archive."""
    return hashlib.sha1(b"blob %d\0" % len(raw) + raw, usedforsecurity=False).hexdigest()


@transaction.atomic
def store_message(*, mailing_list: MailingList, raw: bytes, blob: str = "") -> Message:
    """Store one mail, once, and give it to its series. Never raises because of what the mail holds."""
    blob = blob or blob_id(raw)
    parsed = parse_mail(raw, blob=blob, received_at=clock.now())
    message, created = Message.objects.get_or_create(
        mailing_list=mailing_list,
        message_id=parsed.message_id,
        blob=blob,
        defaults={
            "raw": raw,
            "kind": parsed.kind,
            "reason": parsed.reason,
            "subject": parsed.subject,
            "sender_name": parsed.sender_name,
            "sender_address": parsed.sender_address,
            "sent_at": parsed.sent_at,
            "in_reply_to": parsed.in_reply_to,
            "references": list(parsed.references),
        },
    )
    if created:
        log.info("message_stored", list=mailing_list.name, message_id=message.message_id, kind=message.kind)
        _assign(message, parsed)
    return message


def _assign(message: Message, parsed: ParsedMail) -> None:
    if parsed.kind not in {Message.Kind.PATCH, Message.Kind.COVER}:
        return
    try:
        with transaction.atomic():
            assign_message(message)
    except (IntegrityError, DataError) as error:
        # One mail that no rule foresaw must not stop the list: it stays, and a person can read why.
        message.reason = f"could not be made part of a series: {str(error).splitlines()[0]}"
        message.save(update_fields=["reason"])
        log.error("message_not_assigned", message_id=message.message_id, error=message.reason)  # noqa: TRY400


@transaction.atomic
def forget_message(*, mailing_list: MailingList, blob: str) -> None:
    """The archive was asked to remove this mail: its content goes here too.

    The row stays with Message-ID and subject, so that threads and finished series still explain themselves. A series
    that has not been applied yet is refused; one that has keeps its commits.
    """
    for message in Message.objects.select_for_update().filter(mailing_list=mailing_list, blob=blob):
        if message.kind == Message.Kind.DELETED:
            continue
        for series in Series.objects.filter(patches__message=message):
            if Series.State.REFUSED in series.NEXT.get(Series.State(series.state), frozenset()):
                series.advance(Series.State.REFUSED, f"the archive deleted <{message.message_id}>")
        message.kind, message.raw, message.reason = Message.Kind.DELETED, b"", "deleted from the archive"
        message.save(update_fields=["kind", "raw", "reason"])
        log.info("message_deleted", list=mailing_list.name, message_id=message.message_id)

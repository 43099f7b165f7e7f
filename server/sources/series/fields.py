"""The columns of a series, as its mails tell them."""

from collections.abc import Mapping
from typing import Any

from server.sources.mail.subjects import parse_subject
from server.sources.mail.threads import Version
from server.sources.messages.facts import MailFacts, announced
from server.sources.models import Message, Series
from server.sources.series.rows import ThreadRows

# With a blank and the id of a blob it still fits.
_LONGEST_NAMED = 450


def series_fields(rows: ThreadRows, facts: Mapping[int, MailFacts], version: Version) -> dict[str, Any]:
    """All that is the same whatever state the series is in. The older versions of its thread must be written."""
    root = rows.messages[version.root.key]
    marks = parse_subject(root.subject)
    order = ([version.cover] if version.cover else []) + list(version.patches)
    fields = {
        "mailing_list_id": root.mailing_list_id,
        "root_message_id": root.message_id,
        "subject": marks.title,
        "author_name": root.sender_name,
        "author_address": root.sender_address,
        "version": version.version,
        "minor": version.minor,
        "total": version.total,
        "submitted_at": root.sent_at or root.received_at,
        "received_at": min(rows.messages[p.key].received_at for p in version.postings),
        "cover_id": version.cover.key if version.cover else None,
        "rfc": marks.rfc,
        "resend": marks.resend,
        "tags": list(marks.tags),
        **announced(facts[p.key] for p in order),
    }
    older = rows.rerolled(version)
    return fields | inherited(fields, older.series) if older else fields


def inherited(fields: Mapping[str, Any], older: Series) -> dict[str, Any]:
    """What a partial re-roll takes over: it comes without a cover letter, and the older one's counts for it, too.

    It takes the letter itself with the words, as these are believed only of a sender who was checked.
    """
    words = {name: fields[name] or getattr(older, name) for name in ("base_commit", "change_id", "prerequisites")}
    return {"subject": older.subject, "cover_id": older.cover_id, **words}


def with_free_root(fields: Mapping[str, Any], root: Message, series: Series | None) -> dict[str, Any]:
    """`fields`; where another series begins with the Message-ID of `root` already, with a name of its own.

    Anybody can send a mail with the Message-ID of another one: neither series may keep the other out. No Message-ID
    has a blank (`Series.first_message_id`).
    """
    named = dict(fields)
    if is_taken(named, series):
        named["root_message_id"] = f"{root.message_id[:_LONGEST_NAMED]} {root.blob}"
    return named


def is_taken(fields: Mapping[str, Any], series: Series | None) -> bool:
    """Whether a series other than `series` begins with this Message-ID: they are not unique in the world."""
    unique = {name: fields[name] for name in ("mailing_list_id", "root_message_id", "version", "minor")}
    if series and all(getattr(series, name) == value for name, value in unique.items()):
        return False
    return Series.objects.filter(**unique).exists()

"""From the bytes of a mail to what the service needs to know of it. Mails are hostile; nothing here raises."""

import re
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from server.core.reasons import NONE, Because, Reason
from server.sources.mail.body import needs_of, text_parts, trailers_of_patch, trailers_of_reply
from server.sources.mail.diffs import NO_DIFF, Diff, may_hold_diff, read_diff
from server.sources.mail.headers import (
    OLDEST,
    Headers,
    UnreadableMailError,
    addresses,
    author_of,
    date,
    decoded,
    list_ids,
    message_ids,
    person,
    plain,
    split_headers,
)
from server.sources.mail.postings import Marks, parse_subject

Kind = Literal["cover", "patch", "other", "unusable"]
_PULL_SUBJECT = re.compile(r"(?:git )?pull\b|please pull", re.IGNORECASE)
_PULL_TEXT = ("are available in the git repository at", "are available in the Git repository at")


def kind_of(marks: Marks, body: str, *, has_diff: bool) -> tuple[Kind, Reason]:
    """The kind of a mail, with the reason where it is not what it looks like."""
    if marks.reply or not (marks.patch or has_diff):
        return "other", NONE
    if not marks.patch and _asks_to_pull(marks, body):
        # Some show all that they ask to pull: that can be tried like a patch.
        told = Because.PULL_REQUEST("a pull request: its diff is one patch" if has_diff else "a pull request")
        return ("patch" if has_diff else "other"), told
    if marks.index == 0 and marks.total:
        return "cover", Because.COVER_WITH_DIFF() if has_diff else NONE
    return ("patch", NONE) if has_diff else ("other", Because.NO_DIFF())


def _asks_to_pull(marks: Marks, body: str) -> bool:
    words = " ".join(marks.tags)
    return bool(_PULL_SUBJECT.search(words) or _PULL_SUBJECT.match(marks.title)) or any(t in body for t in _PULL_TEXT)


# Patches are far smaller.
MAX_BYTES = 4 * 1024 * 1024
# So much of a larger mail is read to know what it is: its headers.
_HEAD_BYTES = 64 * 1024
# What the standard library raises on texts that only an attacker or a broken program writes.
_HOSTILE = (ValueError, LookupError, TypeError, AttributeError, RecursionError, AssertionError, OverflowError)


@dataclass(frozen=True)
class ParsedMail:
    """What a mail says.

    `sender` is the From header, `author` the in-body From of a patch where there is one. `recipients` are the addresses
    of To and Cc, `list_ids` those of List-Id, all lower case. `prerequisites` are "patch-id:HEX", "change-id:ID" and
    "message-id:ID". `trailers` are those of the commit message for a patch, of what the sender wrote for other mails.
    `whole` tells that `body` holds all parts.
    """

    message_id: str
    kind: Kind
    reason: Reason
    marks: Marks
    subject: str = ""
    sender_name: str = ""
    sender_address: str = ""
    author_name: str = ""
    author_address: str = ""
    sent_at: datetime = OLDEST
    in_reply_to: str = ""
    references: tuple[str, ...] = ()
    body: str = ""
    whole: bool = True
    automatic: bool = False
    base_commit: str = ""
    change_id: str = ""
    recipients: tuple[str, ...] = ()
    list_ids: tuple[str, ...] = ()
    prerequisites: tuple[str, ...] = ()
    trailers: tuple[str, ...] = ()
    diff: Diff = NO_DIFF

    @property
    def has_diff(self) -> bool:
        return bool(self.diff)

    @property
    def may_be_cover(self) -> bool:
        """Whether this may be a cover letter that is not marked as one: patches that answer it decide."""
        starts = not (self.in_reply_to or self.references) or self.marks.patch
        return self.kind == "other" and starts and not (self.marks.reply or self.automatic or self.diff)


def parse_mail(raw: bytes, *, blob: str, received_at: datetime) -> ParsedMail:
    """Read one mail. `blob` names it where it brings no usable Message-ID; an impossible date becomes `received_at`.

    Of a mail larger than MAX_BYTES only the headers are read: it is "unusable", but its place in its thread is known.
    """
    nothing = ParsedMail(f"{blob}@no-message-id.invalid", "unusable", NONE, Marks(""), sent_at=received_at)
    known = nothing
    try:
        headers, start = split_headers(raw if len(raw) <= MAX_BYTES else raw[:_HEAD_BYTES])
        known = _with_headers(nothing, headers, received_at)
        if len(raw) > MAX_BYTES:
            raise UnreadableMailError(f"larger than {MAX_BYTES // 2**20} MB")
        if headers.too_long:
            raise UnreadableMailError(headers.too_long)
        return _with_text(known, headers, raw[start:])
    except UnreadableMailError as error:
        return replace(known, reason=Because.UNUSABLE(plain(str(error))))
    except _HOSTILE as error:
        return replace(
            known, reason=Because.UNUSABLE(plain(f"cannot be parsed: {type(error).__name__}: {error}"[:500]))
        )


def _with_headers(nothing: ParsedMail, headers: Headers, received_at: datetime) -> ParsedMail:
    own_ids = message_ids(headers.every("message-id")[:1])
    parents = message_ids(headers.every("in-reply-to")[:1])
    name, address = person(headers.first("from"))
    subject = decoded(headers.first("subject"))
    return replace(
        nothing,
        message_id=own_ids[0] if own_ids else nothing.message_id,
        reason=NONE if own_ids else Because.NAMED_BY_US("no usable Message-ID: named after its content"),
        marks=parse_subject(subject),
        subject=subject,
        sender_name=name,
        sender_address=address,
        author_name=name,
        author_address=address,
        sent_at=date(headers.first("date"), received_at),
        in_reply_to=parents[0] if parents else "",
        references=message_ids(headers.every("references")),
        automatic=headers.first("auto-submitted").lower() not in {"", "no"} or bool(headers.first("x-tidemark")),
        recipients=addresses([*headers.every("to"), *headers.every("cc")]),
        list_ids=list_ids(headers.every("list-id")),
    )


def _with_text(known: ParsedMail, headers: Headers, content: bytes) -> ParsedMail:
    parts, whole = text_parts(headers, content)
    body = "\n".join(part.text for part in parts)
    diff = read_diff(body)
    sender = (known.sender_name, known.sender_address)
    kind, reason = kind_of(known.marks, body, has_diff=bool(diff))
    if kind in {"patch", "cover"} and known.automatic:
        kind, reason = "other", Because.BY_PROGRAM()
    elif kind in {"patch", "cover"} and not known.sender_address:
        kind, reason = "unusable", Because.NO_SENDER()
    is_patch = kind == "patch"
    # An attached patch brings its author along.
    beginning = next((p.text for p in parts if is_patch and may_hold_diff(p.text)), body)
    author = author_of(beginning, sender, headers)
    needs = needs_of(body)
    return replace(
        known,
        kind=kind,
        reason=reason or known.reason,
        author_name=author[0],
        author_address=author[1],
        body=body,
        whole=whole,
        base_commit=needs.base_commit,
        change_id=needs.change_id,
        prerequisites=needs.prerequisites,
        trailers=trailers_of_patch(body) if is_patch else trailers_of_reply(body, sender),
        diff=diff,
    )

"""From the bytes of a mail to what the service needs to know of it. Mails are hostile; nothing here raises."""

import email.message
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Literal

from server.sources.mail.headers import ShortHeaders, addresses_of, decoded, message_ids, plain, raw_header, text_of
from server.sources.mail.subjects import Marks, parse_subject

Kind = Literal["cover", "patch", "other", "unusable"]

# Patches are far smaller. Reading deeply nested parts takes up to a minute for so much.
MAX_BYTES = 4 * 1024 * 1024
_OLDEST = datetime(1990, 1, 1, tzinfo=UTC)
_POLICY = ShortHeaders()
_CLOCK_SKEW = timedelta(days=1)
_TEXT_TYPES = frozenset({"text/plain", "text/x-patch", "text/x-diff", "application/x-patch", "application/x-diff"})
_PATCH_NAMES = (".patch", ".diff")
_DIFF = re.compile(r"^(?:diff --git \S|--- \S[^\n]*\n\+\+\+ \S[^\n]*\n@@+ ?-\d)", re.MULTILINE)
_BASE_COMMIT = re.compile(r"^base-commit:[ \t]*([0-9a-f]{40})[ \t]*$", re.MULTILINE)
_CHANGE_ID = re.compile(r"^change-id:[ \t]*(\S{1,200})[ \t]*$", re.MULTILINE)
_BODY_FROM = re.compile(r"\s*^From:[ \t]*(\S[^\n]{0,1000})$", re.MULTILINE)
# What the standard library raises on mails that only an attacker or a broken program writes.
_HOSTILE = (ValueError, LookupError, TypeError, AttributeError, RecursionError, AssertionError)


@dataclass(frozen=True)
class ParsedMail:
    """`sender` is the From header; `author` is the in-body From of a patch where there is one."""

    message_id: str
    kind: Kind
    reason: str
    marks: Marks
    subject: str = ""
    sender_name: str = ""
    sender_address: str = ""
    author_name: str = ""
    author_address: str = ""
    sent_at: datetime = _OLDEST
    in_reply_to: str = ""
    references: tuple[str, ...] = ()
    body: str = ""
    automatic: bool = False
    base_commit: str = ""
    change_id: str = ""

    @property
    def has_diff(self) -> bool:
        return bool(_DIFF.search(self.body))


def parse_mail(raw: bytes, *, blob: str, received_at: datetime) -> ParsedMail:
    """Read one mail. `blob` names it where it brings no usable Message-ID; an impossible date becomes `received_at`."""
    nothing = ParsedMail(f"{blob}@no-message-id.invalid", "unusable", "", Marks(""), sent_at=received_at)
    if len(raw) > MAX_BYTES:
        return replace(nothing, reason=f"larger than {MAX_BYTES // 2**20} MB")
    try:
        return _classified(_read(raw, nothing, received_at))
    except _HOSTILE as error:
        return replace(nothing, reason=plain(f"cannot be parsed: {type(error).__name__}: {error}"[:500]))


def _read(raw: bytes, nothing: ParsedMail, received_at: datetime) -> ParsedMail:
    mail = email.message_from_bytes(raw, policy=_POLICY)
    own_ids = message_ids(raw_header(mail, "message-id"))
    parents = message_ids(raw_header(mail, "in-reply-to"))
    name, address = addresses_of(raw_header(mail, "from"))
    subject = " ".join(decoded(raw_header(mail, "subject")).split())
    body = _body(mail)
    found = _BODY_FROM.match(body)
    author = addresses_of(found[1]) if found else ("", "")
    submitted = raw_header(mail, "auto-submitted").strip().lower()
    base, change = _BASE_COMMIT.search(body), _CHANGE_ID.search(body)
    return replace(
        nothing,
        message_id=own_ids[0] if own_ids else nothing.message_id,
        reason="" if own_ids else "no usable Message-ID: named after its content",
        marks=parse_subject(subject),
        subject=subject,
        sender_name=name,
        sender_address=address,
        author_name=author[0] if author[1] else name,
        author_address=author[1] or address,
        sent_at=_date(raw_header(mail, "date"), received_at),
        in_reply_to=parents[0] if parents else "",
        references=message_ids(raw_header(mail, "references")),
        body=body,
        automatic=submitted not in {"", "no"} or bool(raw_header(mail, "x-tidemark")),
        base_commit=base[1] if base else "",
        change_id=change[1] if change else "",
    )


def _classified(mail: ParsedMail) -> ParsedMail:
    kind, reason = _kind(mail)
    return replace(mail, kind=kind, reason=reason or mail.reason)


def _kind(mail: ParsedMail) -> tuple[Kind, str]:
    marks = mail.marks
    has_diff = mail.has_diff
    if marks.reply or not (marks.patch or has_diff):
        return "other", ""
    if mail.automatic:
        return "other", "sent by a program: never a patch"
    if not mail.sender_address:
        return "unusable", "no usable From address"
    if not marks.patch and (mail.in_reply_to or mail.references or "pull" in " ".join(marks.tags).lower()):
        # People show code in a discussion; only a mark or a mail of its own makes it a proposal.
        return "other", "holds a diff, but nothing marks it as a patch"
    return _kind_by_counter(marks, has_diff=has_diff)


def _kind_by_counter(marks: Marks, *, has_diff: bool) -> tuple[Kind, str]:
    if marks.index == 0 and marks.total:
        return "cover", "a cover letter that holds a diff: the diff is not applied" if has_diff else ""
    if not has_diff:
        return "other", "marked as a patch, but holds no diff"
    if marks.index and marks.total is not None and marks.index > marks.total:
        return "other", f"patch {marks.index} of {marks.total}"
    return "patch", ""


def _date(value: str, received_at: datetime) -> datetime:
    try:
        sent = parsedate_to_datetime(plain(value))
        if sent.tzinfo is None:
            sent = sent.replace(tzinfo=UTC)
        plausible = _OLDEST <= sent <= received_at + _CLOCK_SKEW
    except (*_HOSTILE, OverflowError):
        return received_at
    return sent if plausible else received_at


def _body(mail: email.message.Message) -> str:
    parts = [_text(part) for part in mail.walk() if _is_text(part)]
    return "\n".join(parts)


def _is_text(part: email.message.Message) -> bool:
    if part.is_multipart():
        return False
    name = part.get_filename()
    return part.get_content_type() in _TEXT_TYPES or (isinstance(name, str) and name.lower().endswith(_PATCH_NAMES))


def _text(part: email.message.Message) -> str:
    content = part.get_payload(decode=True)
    if not isinstance(content, bytes):
        return ""
    charset = str(part.get_param("charset") or "utf-8")
    return plain(text_of(content, charset).replace("\r\n", "\n"))

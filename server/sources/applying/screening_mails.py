"""The bytes that git gets for one patch: the mail as it came, or written anew from what our own parser read.

git reads every part of a mail, whatever its type and however it is encoded; pages, archives and our parser do not.
"""

import re
from email.utils import format_datetime

from server.sources.mail.parser import ParsedMail, parse_mail
from server.sources.models import Message

_DATE = re.compile(rb"^date:[^\n]*\n(?:[ \t][^\n]*\n)*", re.MULTILINE | re.IGNORECASE)
_ENVELOPE = re.compile(rb"\A>?From [^\n]*\n")
_LINE_END = re.compile(rb"\r+\n")
_BREAKS = re.compile(r"[\0\r\n]+")
# Beside line ends, what would end a quoted name or an address.
_UNSAFE = re.compile(r"[\0\r\n\\\"<>]+")


def mail_as_sent(message: Message) -> bytes:
    """The mail with the date that the service believes: with one that git cannot read, git am would fail."""
    # All CRs before a line's end: git am takes one more off than git mailinfo, and both must see the same lines.
    raw = _ENVELOPE.sub(b"", _LINE_END.sub(b"\n", bytes(message.raw)))
    headers, blank, body = raw.partition(b"\n\n")
    return _date_line(message) + _DATE.sub(b"", headers + b"\n").removesuffix(b"\n") + blank + body


def as_checked(message: Message) -> ParsedMail:
    return parse_mail(bytes(message.raw), blob=message.blob, received_at=message.received_at)


def mail_anew(message: Message, mail: ParsedMail) -> bytes:
    """Sender, date, subject and text as our parser reads them, for mails in which git reads something else, or nothing.

    Such are diffs in attachments of odd types, or beside HTML or signatures, and lines that end in CR inside base64.
    """
    headers = (
        f'From: "{_UNSAFE.sub(" ", mail.sender_name)}" <{_UNSAFE.sub("", message.sender_address)}>\n'
        f"Subject: {_BREAKS.sub(' ', mail.subject)}\n"
        "MIME-Version: 1.0\nContent-Type: text/plain; charset=UTF-8\nContent-Transfer-Encoding: 8bit\n\n"
    )
    # The last line of a part ends where its boundary begins; to git it would be half a line.
    text = mail.body if mail.body.endswith("\n") else f"{mail.body}\n"
    return _date_line(message) + _LINE_END.sub(b"\n", (headers + text).encode("utf-8", "replace"))


def _date_line(message: Message) -> bytes:
    return f"Date: {format_datetime(message.sent_at or message.received_at)}\n".encode()

"""The bytes of a mail: made from its row alone, so that every try to send it sends the same ones."""

import quopri
from collections.abc import Iterable, Iterator, Sequence
from email import message_from_bytes
from email.header import Header
from email.message import Message as ParsedMessage
from email.utils import format_datetime, formataddr, parseaddr
from typing import Any

from django.conf import settings
from django.core.mail import EmailMessage
from django.utils.crypto import constant_time_compare, salted_hmac

from server.reports.models import Delivery, Report
from server.reports.sending.signature import sign

_WIDTH = 78
_LONGEST_LINE = 998
_MARK_LETTERS = 12


class SealedMail(EmailMessage):
    """A mail whose bytes are made. `sender` is that of its envelope: where mail servers send what they do not take.

    `only` names those of its readers who do not have it yet. `refused` is filled by whoever hands it on: who was not
    taken, with the code and the words of the mail server.
    """

    def __init__(self, raw: bytes, sender: str, **told: Any) -> None:
        super().__init__(**told)
        self.raw = raw
        self.sender = sender
        self.only: list[str] | None = None
        self.refused: dict[str, tuple[int, str]] = {}
        # From here on the mail server may have it, whatever it answers.
        self.begun = False

    def recipients(self) -> list[str]:
        return super().recipients() if self.only is None else self.only

    def message(self, **_options: Any) -> ParsedMessage:  # type: ignore[override] # Django's own is another class
        return message_from_bytes(self.raw)

    def sealed(self, delivery: Delivery) -> "SealedMail":
        """Signed, as it leaves. DomainError where a key cannot be used."""
        self.raw = sign(self.raw, delivery.created_at)
        return self


def build_mail(delivery: Delivery, to: list[str], cc: list[str]) -> SealedMail:
    """Without its signature (`sealed`), which needs keys that not every process may read."""
    report = delivery.report
    head = "".join(f"{line}\n" for line in _head(delivery, to, cc))
    encoding, body = _encoded(report.body)
    head += f'MIME-Version: 1.0\nContent-Type: text/plain; charset="utf-8"\nContent-Transfer-Encoding: {encoding}\n'
    return SealedMail(
        f"{head}\n".encode("ascii") + body,
        envelope_sender(delivery),
        subject=report.subject,
        body=report.body,
        from_email=settings.MAIL_FROM,
        to=to,
        cc=cc,
    )


def _head(delivery: Delivery, to: Sequence[str], cc: Sequence[str]) -> Iterator[str]:
    report = delivery.report
    about = report.finding
    domain = parseaddr(settings.MAIL_FROM)[1].rpartition("@")[2]
    yield _subject(report.subject)
    yield _people("From", [settings.MAIL_FROM])
    yield _people("To", to)
    if cc:
        yield _people("Cc", cc)
    if settings.MAIL_REPLY_TO:
        yield _people("Reply-To", [settings.MAIL_REPLY_TO])
    yield _folded("Date", [format_datetime(delivery.created_at)])
    yield _folded("Message-ID", [_id(delivery.message_id)])
    if report.in_reply_to:
        yield _folded("In-Reply-To", [_id(report.in_reply_to)])
        before = [*report.references, *([] if report.in_reply_to in report.references else [report.in_reply_to])]
        yield _folded("References", [_id(reference) for reference in before])
    is_answer = report.kind == Report.Kind.ANSWER
    # No Precedence: it is no standard, some lists drop what is "bulk", and Auto-Submitted quiets the same robots.
    yield f"Auto-Submitted: {'auto-replied' if is_answer else 'auto-generated'}"
    yield _folded("List-Id", ["Tidemark", "reports", f"<reports.{_plain(domain)}>"])
    yield _folded("X-Tidemark", [f"series/{about.series_id}" if about and about.series_id else f"report/{report.pk}"])


def _plain(text: str) -> str:
    """On one line: nothing that a field holds begins another header."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())


def _folded(name: str, words: Iterable[str]) -> str:
    lines = [f"{name}:"]
    for word in words:
        # The first one stays beside the name: some readers lose a field that begins with a fold.
        if len(lines[-1]) + 1 + len(word) > _WIDTH and lines != [f"{name}:"]:
            lines.append("")
        lines[-1] += f" {word}"
    return "\n".join(lines)


def _subject(text: str) -> str:
    plain = _plain(text)
    if plain.isascii():
        return _folded("Subject", plain.split())
    return f"Subject: {Header(plain, 'utf-8', maxlinelen=_WIDTH - 2, header_name='Subject').encode()}"


def _id(message_id: str) -> str:
    return f"<{''.join(sign for sign in message_id if '!' <= sign <= '~' and sign not in '<>')}>"


def _people(name: str, people: Sequence[str]) -> str:
    written = [_person(one) for one in people]
    last = len(written) - 1
    words = [part for place, one in enumerate(written) for part in (one + "," * (place < last)).split(" ")]
    return _folded(name, words)


def _person(told: str) -> str:
    name, address = parseaddr(_plain(told))
    address = "".join(sign for sign in address if "!" <= sign <= "~" and sign not in "<>,;")
    if not name or not address:
        return address
    if name.isascii():
        return formataddr((name, address))
    encoded = Header(name, "utf-8", maxlinelen=_WIDTH - 2).encode().replace("\n", "")
    return f"{encoded} <{address}>"


def _encoded(body: str) -> tuple[str, bytes]:
    """As it stands where every mail server takes it so."""
    text = body.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n") + "\n"
    lines = text.split("\n")
    if text.isascii() and "\0" not in text and max(map(len, lines)) <= _LONGEST_LINE:
        return "7bit", text.encode("ascii")
    return "quoted-printable", quopri.encodestring(text.encode("utf-8", "replace"))


def envelope_sender(delivery: Delivery) -> str:
    """The sender's own address, or one of this delivery alone: what comes to it came from who got the mail."""
    if not settings.MAIL_BOUNCES:
        return parseaddr(settings.MAIL_FROM)[1]
    local, _, domain = settings.MAIL_BOUNCES.rpartition("@")
    return f"{local}+{delivery.pk}.{_mark(delivery.message_id)}@{domain}"


def is_envelope_sender(address: str, delivery: Delivery) -> bool:
    return constant_time_compare(address.lower(), envelope_sender(delivery).lower())


def _mark(message_id: str) -> str:
    return salted_hmac("server.reports.sending", message_id, algorithm="sha256").hexdigest()[:_MARK_LETTERS]

"""The mail of a report: whether its text still stands, who gets it, and the way out."""

import ipaddress
import re
import smtplib
import socket
from collections.abc import Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from email import message_from_bytes, policy
from email.utils import format_datetime, getaddresses, parseaddr
from typing import Any

import structlog
from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.mail import EmailMessage, get_connection
from django.core.validators import EmailValidator

from server.core.errors import DomainError
from server.core.models import Transition
from server.core.reasons import Because
from server.detection.models import Finding
from server.reports.composer import Text, compose, gather
from server.reports.composer.evidence import root_message
from server.reports.models import Delivery, OptOut, Report, ReportState
from server.sources.models import Open, Series

log = structlog.get_logger(__name__)

CHANGED = Because.TEXT_CHANGED(
    "its finding says something else since it was written: the text is new, and wants to be read again"
)


def renew(report: Report) -> bool:
    """Write the text anew if the finding was bisected after it was written; whether another text came of it.

    A bisection names a patch, and takes back what its ends do not show again. Raises DomainError `incomplete-report`
    where nothing may be told any more.
    """
    if report.state not in (ReportState.DRAFT, ReportState.APPROVED) or not _was_bisected_since(report):
        return False
    text = other_text(report)
    return text is not None and report.note(CHANGED, subject=text.subject, body=text.body, released=False)


def other_text(report: Report) -> Text | None:
    """What its finding says now, None if that is what stands there."""
    if report.finding is None:
        return None
    text = compose(gather(report.finding))
    return None if (text.subject, text.body) == (report.subject, report.body) else text


def _was_bisected_since(report: Report) -> bool:
    if report.finding_id is None:
        return False
    return Transition.objects.filter(
        subject="finding", subject_id=report.finding_id, before=Finding.State.BISECTING, at__gt=report.created_at
    ).exists()


_MESSAGE_ID = re.compile(r"[!-;=?-~]{1,400}")
_MOST_REFERENCES = 20
_valid_domain = EmailValidator(allowlist=["localhost"])


@dataclass(frozen=True)
class Envelope:
    """Where a reply goes. Message ids stand without their angle brackets."""

    to: tuple[str, ...]
    cc: tuple[str, ...]
    in_reply_to: str
    references: tuple[str, ...]


def envelope(series: Series) -> Envelope:
    """To the author, Cc the people and lists of the first mail; at most MAIL_MAX_RECIPIENTS, each once, never us.

    Nobody of a header that somebody else may have written, as far as its proof tells; who approves a series has seen
    its mails.
    """
    root = root_message(series)
    is_seen = series.approved_at is not None
    own = [name for name in (Open.TO, Open.CC) if root and (is_seen or name not in root.unsigned)]
    named = _named_in(bytes(root.raw), own) if root else []
    author, *others = _distinct([series.author_address, series.mailing_list.address, *named]) or [""]
    if not author:
        raise DomainError("incomplete-report", "nobody to write to: neither author nor list has a usable address")
    if not _MESSAGE_ID.fullmatch(series.first_message_id):
        raise DomainError("incomplete-report", "the message id of the series cannot be answered")
    before = [name for name in (root.references if root else []) if _MESSAGE_ID.fullmatch(name)]
    references = list(dict.fromkeys([*before[-_MOST_REFERENCES:], series.first_message_id]))
    return Envelope(
        to=(author,),
        cc=tuple(others[: settings.MAIL_MAX_RECIPIENTS - 1]),
        in_reply_to=series.first_message_id,
        references=tuple(references),
    )


def opt_outs(addresses: Iterable[str]) -> dict[str, datetime]:
    """Those of them that asked for no mail, in lower case, and when."""
    asked = OptOut.objects.filter(address__in={address.lower() for address in addresses})
    return dict(asked.values_list("address", "created_at"))


def readers(report: Report, out: Container[str]) -> tuple[list[str], list[str]]:
    """To and Cc of a report without `out`."""
    to = [address for address in report.to if address.lower() not in out]
    cc = [address for address in report.cc if address.lower() not in out]
    return (to, cc) if to else (cc[:1], cc[1:])


def refuse_readers(to: Sequence[str], cc: Sequence[str]) -> None:
    if len(to) + len(cc) > settings.MAIL_MAX_RECIPIENTS:
        raise DomainError("too-many-recipients", f"{len(to) + len(cc)} recipients are too many")
    if not to:
        raise DomainError("nobody-to-tell", "every recipient has opted out")


def _named_in(raw: bytes, headers: Iterable[str]) -> list[str]:
    # The old policy: the new one's header parser fails on some malformed headers.
    mail = message_from_bytes(raw, policy=policy.compat32)
    fields = [str(value) for name in headers for value in mail.get_all(name, [])]
    try:
        return [address for _name, address in getaddresses(fields)]
    except RecursionError:
        # Comments nested a thousand deep: such a mail names nobody.
        return []


def _distinct(addresses: Iterable[str]) -> list[str]:
    own = parseaddr(settings.MAIL_FROM)[1].lower()
    found: dict[str, str] = {}
    for address in addresses:
        clean = address.strip()
        if clean.lower() != own and _usable(clean):
            found.setdefault(clean.lower(), clean)
    return list(found.values())


def _usable(address: str) -> bool:
    try:
        _valid_domain(address)
    except ValidationError:
        return False
    return address.isascii() and address.isprintable()


_PERMANENT_FROM = 500

_PRIVATE = tuple(ipaddress.ip_network(n) for n in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"))


@dataclass(frozen=True)
class Route:
    """A mail server. `options` are for Django's SMTP backend; without any it takes the site's settings."""

    name: str
    options: dict[str, Any]


def route(*, virtual: bool) -> Route:
    """Raises DomainError: `virtual-stays` when virtual results have no sink to go to, temporary `sink-unknown`."""
    if not virtual:
        return Route(f"{settings.EMAIL_HOST}:{settings.EMAIL_PORT}", {})
    if not settings.MAIL_SINK:
        raise DomainError("virtual-stays", "virtual results never leave the site, and no mail sink is set")
    host, _, port = settings.MAIL_SINK.rpartition(":")
    if not (host and port.isdigit() and _stays_inside(host)):
        raise DomainError(
            "virtual-stays",
            "virtual results never leave the site: the sink must be HOST:PORT on loopback or in a private network",
        )
    options = {"host": host.strip("[]"), "port": int(port), "username": "", "password": "", "use_tls": False}
    return Route(settings.MAIL_SINK, options)


def build_mail(delivery: Delivery, to: list[str], cc: list[str]) -> EmailMessage:
    """Made from the row alone, so that every try gives the same bytes."""
    report = delivery.report
    about = report.finding
    return EmailMessage(
        subject=report.subject,
        body=report.body,
        from_email=settings.MAIL_FROM,
        to=to,
        cc=cc,
        headers={
            "Message-ID": f"<{delivery.message_id}>",
            "Date": format_datetime(delivery.created_at),
            "In-Reply-To": f"<{report.in_reply_to}>",
            "References": " ".join(f"<{reference}>" for reference in report.references),
            "Auto-Submitted": "auto-generated",
            "X-Tidemark": f"series/{about.series_id}" if about and about.series_id else f"report/{report.pk}",
        },
    )


def transmit(mail: EmailMessage, way: Route) -> None:
    """Raises DomainError, permanent when the server will never take this mail."""
    connection = get_connection(**way.options)
    try:
        connection.open()
        connection.send_messages([mail])
    except (smtplib.SMTPException, OSError) as error:
        words = _words(error)
        # The operator's log alone tells who was refused.
        log.warning("mail_refused", way=way.name, message_id=mail.extra_headers.get("Message-ID", ""), said=words)
        said = _ADDRESS.sub("(an address)", words)
        raise DomainError("mail-refused", f"{way.name}: {said}", permanent=_permanent(error)) from error
    finally:
        # The server has taken the mail already: a bad goodbye must not send it again.
        with suppress(smtplib.SMTPException, OSError):
            connection.close()


# The reason of a delivery is read by everybody.
_ADDRESS = re.compile(r"<?[^\s<>@]{1,256}@[^\s<>@:;,]{1,256}>?")


def _permanent(error: Exception) -> bool:
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return all(code >= _PERMANENT_FROM for code, _text in error.recipients.values())
    # A wrong password is the site's fault, and is put right without the mail being lost.
    if isinstance(error, smtplib.SMTPAuthenticationError):
        return False
    return isinstance(error, smtplib.SMTPResponseException) and error.smtp_code >= _PERMANENT_FROM


def _words(error: Exception) -> str:
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return "; ".join(f"{who}: {code} {_decoded(text)}" for who, (code, text) in error.recipients.items())
    if isinstance(error, smtplib.SMTPResponseException):
        return f"{error.smtp_code} {_decoded(error.smtp_error)}"
    return str(error) or type(error).__name__


def _decoded(text: bytes | str) -> str:
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else text


def _stays_inside(host: str) -> bool:
    """Whether every address of `host` is loopback or of a private network, as in compose."""
    try:
        found = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
    except OSError as error:
        # A name service that is away for a moment says nothing about where the sink is.
        raise DomainError("sink-unknown", f"{host} cannot be looked up: {error}", permanent=False) from error
    addresses = [ipaddress.ip_address(entry[4][0]) for entry in found]
    return all(
        address.is_loopback or any(address in network for network in _PRIVATE if network.version == address.version)
        for address in addresses
    )

"""The way out of a mail: its bytes, made from rows alone, and the mail server that takes it."""

import ipaddress
import re
import smtplib
import socket
from contextlib import suppress
from dataclasses import dataclass
from email.utils import format_datetime
from typing import Any

import structlog
from django.conf import settings
from django.core.mail import EmailMessage, get_connection

from server.core.errors import DomainError
from server.reports.models import Delivery

log = structlog.get_logger(__name__)

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
            **({"In-Reply-To": f"<{report.in_reply_to}>"} if report.in_reply_to else {}),
            **({"References": " ".join(f"<{name}>" for name in report.references)} if report.references else {}),
            "Auto-Submitted": "auto-generated",
            "X-Tidemark": f"series/{about.series_id}" if about and about.series_id else f"report/{report.pk}",
        },
    )


def transmit(mail: EmailMessage, way: Route) -> None:
    """Raises DomainError, permanent when the server will never take this mail."""
    connection = get_connection(**way.options)
    begun = False
    try:
        connection.open()
        begun = True
        connection.send_messages([mail])
    except (smtplib.SMTPException, OSError) as error:
        words = _words(error)
        # The operator's log alone tells who was refused.
        log.warning("mail_refused", way=way.name, message_id=mail.extra_headers.get("Message-ID", ""), said=words)
        said = _ADDRESS.sub("(an address)", words)
        lost = isinstance(error, smtplib.SMTPServerDisconnected) or not isinstance(error, smtplib.SMTPException)
        code = "no-answer" if begun and lost else "mail-refused"
        raise DomainError(code, f"{way.name}: {said}", permanent=_permanent(error)) from error
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

"""The talk with the mail server: bounded in time and memory, and each refusal told apart."""

import re
import smtplib
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from email.utils import parseaddr
from typing import Any, BinaryIO

import structlog
from django.conf import settings
from django.core.mail import EmailMessage, get_connection
from django.core.mail.backends.base import BaseEmailBackend
from django.core.mail.utils import DNS_NAME

from server.core.errors import DomainError
from server.reports.sending.headers import SealedMail
from server.reports.sending.route import Route

log = structlog.get_logger(__name__)

# All of a talk: less than the task may take that sends. A server that reads mails before it answers may use the most
# of it after the final dot; a local relay answers at once, and waits in our place.
SECONDS = 75.0
_MOST_ANSWERED = 64 * 1024
_READY = 220
_PERMANENT_FROM = 500
# The site's own fault: it has to log in, or to encrypt first. No mail is lost for it.
_OUR_FAULT = frozenset({530, 534, 535, 538})
_NOT_ASCII = (553, b"5.6.7 not an ASCII address")


class _Answers:
    """What a mail server says, up to a limit for each answer."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.left = _MOST_ANSWERED

    def readline(self, most: int) -> bytes:
        line = self._stream.readline(min(most, self.left))
        self.left -= len(line)
        if self.left <= 0:
            raise smtplib.SMTPServerDisconnected(f"an answer of more than {_MOST_ANSWERED // 1024} kB")
        return line

    def close(self) -> None:
        self._stream.close()


class _Client(smtplib.SMTP):
    # smtplib's own, with the type that it is given here.
    file: Any
    sock: Any
    _host: str
    # From then on the server may have the mail, whatever it answers.
    data_begun = False

    def getreply(self) -> tuple[int, bytes]:
        if self.file is None and self.sock is not None:
            self.file = _Answers(self.sock.makefile("rb"))
        if isinstance(self.file, _Answers):
            self.file.left = _MOST_ANSWERED
        return super().getreply()

    def data(self, msg: Any) -> tuple[int, bytes]:
        self.data_begun = True
        return super().data(msg)

    def rcpt(self, recip: str, options: Sequence[str] = ()) -> tuple[int, bytes]:
        return super().rcpt(recip, options) if recip.isascii() and recip.isprintable() else _NOT_ASCII


class MailWire(BaseEmailBackend):
    """Django's port for mail servers. Settings tell the server where nothing else is given."""

    def __init__(
        self,
        host: str | None = None,
        port: int | None = None,
        username: str | None = None,
        password: str | None = None,
        *,
        use_tls: bool | None = None,
        **_options: Any,
    ) -> None:
        super().__init__()
        self.host = settings.EMAIL_HOST if host is None else host
        self.port = settings.EMAIL_PORT if port is None else port
        self.username = settings.EMAIL_HOST_USER if username is None else username
        self.password = settings.EMAIL_HOST_PASSWORD if password is None else password
        self.use_tls = settings.EMAIL_USE_TLS if use_tls is None else use_tls

    def send_messages(self, email_messages: Sequence[EmailMessage]) -> int:
        """Each in a talk of its own. Raises what smtplib raises; who alone was refused is noted on the mail."""
        for mail in email_messages:
            assert isinstance(mail, SealedMail)
            with self._talk() as server:
                raw = mail.raw.replace(b"\n", b"\r\n")
                try:
                    refused = server.sendmail(mail.sender, [_address(one) for one in mail.recipients()], raw)
                finally:
                    mail.begun = server.data_begun
            mail.refused = {who: (code, _decoded(text)) for who, (code, text) in refused.items()}
        return len(email_messages)

    @contextmanager
    def _talk(self) -> Iterator[_Client]:
        server = _Client(local_hostname=DNS_NAME.get_fqdn(), timeout=settings.EMAIL_TIMEOUT)
        # Whose certificate is asked for; smtplib learns it only where it connects as it is made.
        server._host = self.host  # noqa: SLF001
        end = threading.Timer(SECONDS, _cut, [server])
        end.daemon = True
        began = time.monotonic()
        end.start()
        try:
            code, said = server.connect(self.host, self.port)
            if code != _READY:
                raise smtplib.SMTPConnectError(code, said)
            if self.use_tls:
                server.starttls(context=ssl.create_default_context())
            if self.username and self.password:
                server.login(self.username, self.password)
            # What answers at all may think about a whole mail for longer than about a command.
            server.sock.settimeout(SECONDS)
            yield server
        except (smtplib.SMTPException, OSError) as error:
            if time.monotonic() - began >= SECONDS:
                raise TimeoutError(f"no end after {SECONDS:.0f} s") from error
            raise
        finally:
            end.cancel()
            # The server has taken the mail already, or will not: a bad goodbye changes nothing.
            with suppress(smtplib.SMTPException, OSError, ValueError):
                if server.sock is not None:
                    server.sock.settimeout(2.0)
                    server.quit()
            server.close()


def _cut(server: _Client) -> None:
    with suppress(OSError, AttributeError):
        server.sock.shutdown(socket.SHUT_RDWR)


def _address(recipient: str) -> str:
    return parseaddr(recipient)[1] or recipient


def transmit(mail: SealedMail, way: Route) -> None:
    """Raises DomainError, permanent when the server will never take this mail; `mail.refused` tells who was refused.

    Where the answer to a whole mail is lost, the server may have taken it: the next try sends the same Message-ID.
    """
    try:
        get_connection(**way.options).send_messages([mail])
    except (smtplib.SMTPException, OSError) as error:
        if isinstance(error, smtplib.SMTPRecipientsRefused):
            mail.refused = {who: (code, _decoded(text)) for who, (code, text) in error.recipients.items()}
        words = _words(error)
        # The operator's log alone tells who was refused.
        log.warning("mail_refused", way=way.name, message_id=str(mail.message()["Message-ID"]), said=words)
        lost = isinstance(error, smtplib.SMTPServerDisconnected) or not isinstance(error, smtplib.SMTPException)
        raise DomainError(
            "no-answer" if mail.begun and lost else "mail-refused",
            f"{way.name}: {without_addresses(words)}",
            permanent=_permanent(error),
        ) from error


# The reason of a delivery is read by everybody.
_ADDRESS = re.compile(r"<?[^\s<>@]{1,256}@[^\s<>@:;,]{1,256}>?")
_MOST_WORDS = 1000


def without_addresses(words: str) -> str:
    return _ADDRESS.sub("(an address)", words)


def _permanent(error: Exception) -> bool:
    """Whether the server has refused this very mail for ever: not where it is away, or not willing to talk."""
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return all(is_permanent(code) for code, _text in error.recipients.values())
    if isinstance(error, (smtplib.SMTPSenderRefused, smtplib.SMTPDataError)):
        return is_permanent(error.smtp_code)
    return False


def is_permanent(code: int) -> bool:
    return code >= _PERMANENT_FROM and code not in _OUR_FAULT


def _words(error: Exception) -> str:
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        said = "; ".join(f"{who}: {code} {_decoded(text)}" for who, (code, text) in error.recipients.items())
    elif isinstance(error, smtplib.SMTPResponseException):
        said = f"{error.smtp_code} {_decoded(error.smtp_error)}"
    else:
        said = str(error) or type(error).__name__
    return said[:_MOST_WORDS]


def _decoded(text: bytes | str) -> str:
    plain = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    return "".join(sign if sign.isprintable() else " " for sign in plain)[:_MOST_WORDS]

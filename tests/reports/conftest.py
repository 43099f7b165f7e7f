"""A mail server for the tests of the outbox."""

import socket
from collections.abc import Iterator

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope
from aiosmtpd.smtp import Session as Dialog
from pytest_django.fixtures import Settings


class Server:
    """A mail server that answers what the test wants and keeps what it accepted."""

    def __init__(self) -> None:
        self.accepted: list[bytes] = []
        self.recipients: list[str] = []
        self.answers: list[str] = []
        self.refuses = ""

    async def handle_RCPT(  # noqa: N802 (aiosmtpd's name)
        self, _server: SMTP, _dialog: Dialog, envelope: Envelope, address: str, _options: list[str]
    ) -> str:
        if self.refuses:
            return self.refuses
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server: SMTP, _dialog: Dialog, envelope: Envelope) -> str:  # noqa: N802
        answer = self.answers.pop(0) if self.answers else "250 taken"
        if answer.startswith("250"):
            assert isinstance(envelope.content, bytes)
            self.accepted.append(envelope.content)
            self.recipients = list(envelope.rcpt_tos)
        return answer


@pytest.fixture
def server(settings: Settings) -> Iterator[Server]:
    handler = Server()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    controller = Controller(handler, hostname="127.0.0.1", port=port)
    controller.start()
    settings.EMAIL_BACKEND = "server.reports.sending.wire.MailWire"
    settings.EMAIL_HOST = "127.0.0.1"
    settings.EMAIL_PORT = port
    yield handler
    controller.stop()

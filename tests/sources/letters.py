"""Mails that are told apart by a number, and what the service knows of them."""

import pytest

from server.sources.archives.archive import read_list
from server.sources.models import MailingList, Message
from tests.sources.posting import mail


def letters(count: int, start: int = 0) -> list[bytes]:
    return [mail(f"Letter {n}", message_id=f"letter-{n}@example.org") for n in range(start, start + count)]


def subjects() -> list[str]:
    return list(Message.objects.order_by("pk").values_list("subject", flat=True))


def content(message_id: str) -> list[bytes]:
    rows = Message.objects.filter(message_id=message_id).order_by("pk")
    return [bytes(raw) for raw in rows.values_list("raw", flat=True)]


def killed(mailing_list: MailingList) -> None:
    with pytest.raises(KeyboardInterrupt):
        read_list(mailing_list=mailing_list)

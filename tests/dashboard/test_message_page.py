"""The page of one mail, and its download."""

from typing import Any

import pytest
from django.test import Client

from server.sources.models import Message, Thread
from tests.builders import build_list, build_message, build_series
from tests.dashboard.conftest import Reader

pytestmark = pytest.mark.django_db
HOSTILE = b"From: x\r\nContent-Type: text/html\r\n\r\n<script>alert(1)</script>\0\xff\xfe</pre>"


@pytest.mark.parametrize(
    "path", ["/messages/1/", "/messages/1/raw/", "/messages/1/text/", "/messages/99999999999999999999/"]
)
def test_unknown_mail_is_not_found(reader: Reader, path: str) -> None:
    assert "404" in reader.read(path, status=404)


def test_mail_of_a_series_says_what_was_made_of_it(reader: Reader) -> None:
    series = build_series(subject="mm: Rework")
    Message.objects.update(authentic=True, authenticity="DKIM of example.org")
    patch = series.patches.first()
    assert patch is not None
    text = reader.read(f"/messages/{patch.message_id}/")
    for fact in ("mm: Rework", f"/series/{series.pk}/", "proved", "DKIM of example.org", patch.message.message_id):
        assert fact in text


def test_mail_that_was_not_used_says_why(reader: Reader) -> None:
    mail = build_message(kind=Message.Kind.UNUSABLE, reason="no mail: the headers end nowhere", subject="")
    text = reader.read(f"/messages/{mail.pk}/")
    assert "no mail: the headers end nowhere" in text
    assert "Mail without a subject" in text


def test_mail_links_its_thread_and_its_copies(reader: Reader) -> None:
    thread = Thread.objects.create()
    mail = build_message(thread=thread)
    reply = build_message(thread=thread, subject="Re: something", kind=Message.Kind.OTHER)
    copy = build_message(build_list("lkml"), message_id=mail.message_id)
    text = reader.read(f"/messages/{mail.pk}/")
    assert f'href="/messages/{reply.pk}/"' in text.split('id="thread"')[1]
    assert f'href="/messages/{copy.pk}/"' in text.split('id="copies"')[1]


def test_mail_is_shown_as_text_and_never_as_a_page(reader: Reader, client: Client) -> None:
    mail = build_message(raw=HOSTILE)
    text = reader.read(f"/messages/{mail.pk}/")
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;␀\\xff\\xfe&lt;/pre&gt;" in text
    response = client.get(f"/messages/{mail.pk}/raw/")
    assert response.getvalue() == HOSTILE
    assert response["Content-Length"] == str(len(HOSTILE))
    assert response["Content-Type"] == "text/plain"
    assert response["X-Content-Type-Options"] == "nosniff"
    assert response["Content-Disposition"] == f'attachment; filename="message-{mail.pk}.txt"'
    assert "sandbox" in response["Content-Security-Policy"]


def test_page_shows_what_is_applied_and_not_only_what_arrived(reader: Reader, client: Client) -> None:
    """Two lines at a line end of quoted-printable are one, and a sign that turns text round is named."""
    raw = b"From: x\nContent-Transfer-Encoding: quoted-printable\n\n+// a page=\n+if (x)=E2=80=AE\n"
    mail = build_message(raw=raw)
    text = reader.read(f"/messages/{mail.pk}/")
    assert "+// a page+if (x)[U+202E]" in text
    response: Any = client.get(f"/messages/{mail.pk}/text/")
    assert response.getvalue().decode().strip() == "+// a page+if (x)[U+202E]"
    assert "attachment" in response["Content-Disposition"]


def test_text_of_a_large_mail_is_named_and_sent_in_pieces(client: Client) -> None:
    """Each of millions of signs that nobody sees becomes eight letters."""
    raw = (
        b"From: x\nContent-Type: text/plain; charset=utf-8\n\n" + "\U0001f600".encode() + b"a\tb\n" + b"\x01" * 500_000
    )
    response: Any = client.get(f"/messages/{build_message(raw=raw).pk}/text/")
    assert response.streaming
    pieces = list(response.streaming_content)
    assert max(len(piece) for piece in pieces) < 1 << 20
    text = b"".join(pieces).decode()
    assert text.startswith("\U0001f600a\tb\n[U+0001]")
    assert text.count("[U+0001]") == 500_000


def test_download_of_a_large_mail_is_never_held_whole(client: Client) -> None:
    """Anybody may ask for it, many times at once."""
    raw = HOSTILE + bytes(range(256)) * 20_000
    response: Any = client.get(f"/messages/{build_message(raw=raw).pk}/raw/")
    assert response.streaming
    pieces = list(response.streaming_content)
    assert max(len(piece) for piece in pieces) <= 2 << 20
    assert b"".join(pieces) == raw


def test_page_of_a_very_long_mail_shows_its_beginning(reader: Reader) -> None:
    mail = build_message(raw=b"begin\n" + b"x" * 300_000 + b"\nend\n")
    text = reader.read(f"/messages/{mail.pk}/")
    assert len(text) < 200_000
    assert "only the beginning is shown" in text


def test_deleted_mail_says_so_and_has_no_download(reader: Reader) -> None:
    mail = build_message(kind=Message.Kind.DELETED, raw=b"", reason="deleted from the archive")
    text = reader.read(f"/messages/{mail.pk}/")
    assert "Its content was removed here as well" in text
    assert "Download" not in text
    assert reader.read(f"/messages/{mail.pk}/raw/", status=410) == "deleted from the archive\n"

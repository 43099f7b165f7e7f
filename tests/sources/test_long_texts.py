"""Text of others costs what its length says, however it was made: each of these took minutes to hours."""

import io
from datetime import UTC, datetime

import pytest

from server.core.addresses import without_credentials
from server.lab.trials.kernels import _without_comments
from server.sources.mail import parser
from server.sources.mail.mime import person
from server.sources.mail.parser import MAX_BYTES, parse_mail, text_of_mail
from server.sources.messages.mailboxes import mails_in
from server.sources.models import Message
from server.sources.screened_mails import mail_as_sent
from server.sources.trust.proofs import UnprovableError, domain_of_sender, prove_by_results, read_provable
from tests.sources.posting import DIFF

MANY = 100_000


def test_returns_that_no_line_ends() -> None:
    raw = b"Subject: x\n\n" + b"\r" * 20 * MANY + b"x\r\r\n"
    message = Message(raw=raw, sent_at=datetime(2026, 1, 1, tzinfo=UTC))
    assert mail_as_sent(message).endswith(b"\rx\n")


@pytest.mark.parametrize("sender", ['"' + '\\"' * MANY, '"' + '\\"' * MANY + "\\"])
def test_quotes_in_a_sender_that_nothing_ends(sender: str) -> None:
    for value in (f"ada@example.org {sender}", f"{sender} ada@example.org"):
        with pytest.raises(UnprovableError, match="too long"):
            domain_of_sender(read_provable(f"From: {value}\n\nx\n".encode()), "ada@example.org")


@pytest.mark.parametrize(
    "value",
    [
        'ada@example.org "<eve@example.org>',
        'Ada <ada@example.org> "eve@example.org',
        'ada@example.org "\\" <eve@example.org>',
        'a"b\\"c" <ada@example.org>, "eve@example.org',
    ],
)
def test_quote_that_nothing_ends_hides_no_second_sender(value: str) -> None:
    with pytest.raises(UnprovableError, match="plainly"):
        domain_of_sender(read_provable(f"From: {value}\n\nx\n".encode()), "ada@example.org")


def test_blanks_in_the_results_of_a_server() -> None:
    raw = f"Authentication-Results: mx; dkim=pass {'(a) ' * 40_000}x\nFrom: ada@example.org\n\nx\n".encode()
    assert not prove_by_results(read_provable(raw), sender="ada@example.org", servers=frozenset({"mx"})).proved


def test_addresses_one_after_the_other() -> None:
    assert without_credentials("://" * MANY) == "://" * MANY
    assert without_credentials("see https://a.example/x?token=s and https://b.example/#s.") == (
        "see https://a.example/x and https://b.example/"
    )


def test_line_of_a_mailbox_that_begins_like_a_mail() -> None:
    line = b"From " + b"1x" * MANY + b"\n"
    assert list(mails_in(io.BytesIO(line))) == [line]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (b"int a; // b\nint /* c */ d;\n", b"int a;\nint d;"),
        (b'"/* no */" // yes\n', b'"/* no */"'),
        (b"'\\'' /* yes */ 'x'\n", b"'\\'' 'x'"),
        # Nothing that may be code is taken for a comment.
        (b"int a; /* b\nint c;\n", b"int a; /* b\nint c;"),
        (b'"a // b\nint c; // d\n', b'"a // b\nint c;'),
        (b"'a /* b\nint c; /* d */\n", b"'a /* b\nint c;"),
        (b"/* b " * MANY, (b"/* b " * MANY).rstrip()),
        (b'"' + b'"\\' * MANY, b'"' + b'"\\' * MANY),
        (b"\\'" * MANY + b"\nx", b"\\'" * MANY + b"\nx"),
    ],
)
def test_comments_that_nothing_ends(text: bytes, left: bytes) -> None:
    assert _without_comments(text) == left


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("x" * MANY + ' "@"', ""),
        ("@" + "x" * MANY + " @", ""),
        ("Ada (of Example) ada@example.org, x", "ada@example.org"),
        ("ada@example.org@example.com", "ada@example.org"),
    ],
)
def test_words_that_are_no_address(value: str, found: str) -> None:
    assert person(value)[1] == found


def test_line_after_a_person_without_an_address() -> None:
    raw = b"Message-ID: <a@b>\nSubject: x\n\nReviewed-by: Eve\n<" + b"a@" * MANY + b"\n"
    assert parse_mail(raw, blob="1", received_at=datetime(2026, 1, 1, tzinfo=UTC)).kind == "other"


def test_patch_of_nothing_but_trailers() -> None:
    raw = (
        b"From: e@x.org\nSubject: [PATCH] x\n\n"
        + b"Cc: a@b\n\n" * 4 * MANY
        + b"---\n"
        + DIFF.encode().partition(b"---\n")[2]
    )
    assert parse_mail(raw, blob="1", received_at=datetime(2026, 1, 1, tzinfo=UTC)).trailers == ("Cc: a@b",)


@pytest.mark.parametrize(
    "raw",
    [
        b"Subject: [PATCH] x\n\nx\n---\n" + DIFF.encode(),
        b"Content-Type: text/plain; charset=latin1\nContent-Transfer-Encoding: base64\n\n5OT8\n",
        b"Content-Type: multipart/mixed; boundary=x\n\n--x\n\na\n--x\nContent-Type: text/html\n\n<p>b\n--x--\n",
        b"Content-Type: multipart/mixed; boundary=x\n\n" + b"--x\n\na\n" * 2_000,
        b"no mail at all",
        b"",
        b"Subject: x\n\n" + b"a" * MAX_BYTES,
    ],
)
def test_text_that_pages_show_is_that_of_the_whole_reading(raw: bytes) -> None:
    assert text_of_mail(raw) == parse_mail(raw, blob="1", received_at=datetime(2026, 1, 1, tzinfo=UTC)).body


def test_pages_read_no_more_of_a_mail_than_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread of a web process that reads trailers of strangers holds up all that it serves."""
    monkeypatch.setattr(parser, "trailers_of_reply", None)
    monkeypatch.setattr(parser, "read_diff", None)
    assert text_of_mail(b"Subject: x\n\nReviewed-by: Eve\n") == "Reviewed-by: Eve\n"

import tracemalloc
from datetime import UTC, datetime
from email.message import EmailMessage

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.sources.mail.parser import MAX_BYTES, ParsedMail, parse_mail
from server.sources.mail.postings import Marks, parse_subject
from tests.sources.posting import DIFF, mail

NOW = datetime(2026, 11, 2, tzinfo=UTC)
BLOB = "ab" * 20


def parsed(raw: bytes) -> ParsedMail:
    return parse_mail(raw, blob=BLOB, received_at=NOW)


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ("[PATCH] mm: Do this", Marks("mm: Do this", patch=True)),
        (
            "[PATCH v3 2/8 mm-unstable] mm: Do this",
            Marks("mm: Do this", patch=True, version=3, index=2, total=8, tags=("mm-unstable",)),
        ),
        ("[PATCHv2 01/10] x", Marks("x", patch=True, version=2, index=1, total=10)),
        ("[RFC PATCH V4] x", Marks("x", patch=True, rfc=True, version=4)),
        ("[RFC v2 1/3] x", Marks("x", patch=True, rfc=True, version=2, index=1, total=3)),
        ("[RESEND PATCH 0/3] x", Marks("x", patch=True, resend=True, index=0, total=3)),
        ("[linux-mm] [PATCH -next 1/2] x", Marks("x", patch=True, index=1, total=2, tags=("linux-mm", "-next"))),
        ("Re: [PATCH v2] x", Marks("x", patch=True, reply=True, version=2)),
        ("[mm] Re: [PATCH] x", Marks("x", patch=True, reply=True, tags=("mm",))),
        ("Aw: Re[2]: x", Marks("x", reply=True)),
        ("[PATCH]   a   b ", Marks("a b", patch=True)),
        ("[PATCH 1/99999] x", Marks("x", patch=True, tags=("1/99999",))),
        ("[PATCH v99999999999] x", Marks("x", patch=True, tags=("v99999999999",))),
        ("[PATCH x", Marks("[PATCH x")),
        ("", Marks("")),
    ],
)
def test_subject_says(subject: str, expected: Marks) -> None:
    assert parse_subject(subject) == expected


def test_patch_is_read_with_all_its_headers() -> None:
    found = parsed(mail("[PATCH v2 1/2] README: Say more", DIFF, message_id="p1@x", parent="p0@x"))
    assert (found.kind, found.reason) == ("patch", "")
    assert (found.message_id, found.in_reply_to, found.references) == ("p1@x", "p0@x", ("p0@x",))
    assert (found.sender_name, found.sender_address) == ("Ada Author", "ada@example.org")
    assert found.sent_at == datetime(2026, 11, 1, 12, tzinfo=UTC)


def test_author_in_the_body_is_not_the_sender() -> None:
    found = parsed(mail("[PATCH] x", "From: Bo Writer <bo@example.org>\n\n" + DIFF))
    assert (found.author_name, found.author_address) == ("Bo Writer", "bo@example.org")
    assert found.sender_address == "ada@example.org"


def test_reply_that_quotes_a_patch_is_discussion() -> None:
    quoted = "".join(f"> {line}\n" for line in DIFF.splitlines())
    assert parsed(mail("Re: [PATCH] x", quoted)).kind == "other"
    assert parsed(mail("Re: [PATCH] x", "What about this?\n\n" + DIFF)).kind == "other"
    # Without the mark too: quoted lines are no diff.
    assert parsed(mail("[PATCH] x", quoted)).reason == "marked as a patch, but holds no diff"


def test_diff_in_a_discussion_needs_a_subject_of_its_own() -> None:
    assert parsed(mail("Re: mm: an idea", DIFF, parent="p0@x")).kind == "other"
    assert parsed(mail("mm: an idea", DIFF, parent="p0@x")).kind == "patch"
    assert parsed(mail("mm: an idea", DIFF)).kind == "patch"


@pytest.mark.parametrize("subject", ["[GIT PULL] mm fixes", "Please pull mm", "x86 fixes"])
def test_pull_request_is_a_patch_only_if_it_shows_its_diff(subject: str) -> None:
    text = "The following changes are available in the git repository at:\n\n  git://example.org/linux\n\n"
    found = parsed(mail(subject, text + DIFF))
    assert (found.kind, found.reason) == ("patch", "a pull request: its diff is one patch")
    assert parsed(mail(subject, text)).kind == "other"
    # Cover letters say where to pull their patches from, too.
    assert parsed(mail("[PATCH 0/2] mm: Clear", text)).kind == "cover"


@pytest.mark.parametrize("header", ["X-Tidemark: report\n", "Auto-Submitted: auto-generated\n"])
def test_mail_of_a_program_is_never_a_patch(header: str) -> None:
    found = parsed(mail("[PATCH] x", DIFF, headers=header))
    assert (found.kind, found.reason) == ("other", "sent by a program: never a patch")


def test_auto_submitted_no_is_a_person() -> None:
    assert parsed(mail("[PATCH] x", DIFF, headers="Auto-Submitted: no\n")).kind == "patch"


def test_cover_letter_and_trailers_are_read() -> None:
    body = f"Why.\n\n---\nbase-commit: {BLOB}\nchange-id: 20261101-clear-abc\n"
    found = parsed(mail("[PATCH 0/2] mm: Clear", body))
    assert (found.kind, found.base_commit, found.change_id) == ("cover", BLOB, "20261101-clear-abc")


def test_patch_three_of_two_is_a_patch_that_was_forgotten() -> None:
    found = parsed(mail("[PATCH 3/2] x", DIFF))
    assert (found.kind, found.marks.index, found.marks.total) == ("patch", 3, 2)


@pytest.mark.parametrize("encoding", ["base64", "quoted-printable", "8bit"])
def test_diff_is_found_in_every_transfer_encoding(encoding: str) -> None:
    message = EmailMessage()
    message["From"], message["Subject"], message["Message-ID"] = "a@example.org", "[PATCH] x", "<e@x>"
    message.set_content(DIFF + "ü = 1\n", cte=encoding)
    assert parsed(message.as_bytes()).kind == "patch"


def test_attached_patch_is_a_patch_and_html_is_not_read() -> None:
    message = EmailMessage()
    message["From"], message["Subject"], message["Message-ID"] = "a@example.org", "[PATCH] x", "<e@x>"
    message.set_content("See the attachment.\n")
    message.add_alternative(f"<pre>{DIFF}</pre>", subtype="html")
    assert parsed(message.as_bytes()).kind == "other"
    message.make_mixed()
    message.add_attachment(DIFF.encode(), maintype="application", subtype="octet-stream", filename="0001-x.patch")
    assert parsed(message.as_bytes()).kind == "patch"


def test_missing_message_id_is_made_from_the_content() -> None:
    found = parsed(b"From: a@example.org\nSubject: [PATCH] x\n\n" + DIFF.encode())
    assert (found.message_id, found.kind) == (f"{BLOB}@no-message-id.invalid", "patch")
    assert "no usable Message-ID" in found.reason


def test_longest_message_id_is_not_stored() -> None:
    assert parsed(mail("x", message_id="a" * 600)).message_id.endswith("@no-message-id.invalid")


@pytest.mark.parametrize("date", ["Fri, 31 Dec 2077 12:00:00 +0000", "yesterday", "", "Mon, 1 Jan 1900 0:00 +0000"])
def test_impossible_date_becomes_the_time_of_arrival(date: str) -> None:
    assert parsed(mail("x", date=date)).sent_at == NOW


def test_encoded_and_folded_headers_are_decoded() -> None:
    found = parsed(
        b"From: =?utf-8?q?J=C3=BCrgen=2C_the_Great?= <j@example.org>\nMessage-Id:\n <folded@x>\n"
        b"Subject: =?utf-8?b?W1BBVENIXSBtbTogw5xiZXI=?=\n =?utf-8?q?_all?=\n\nx\n"
    )
    assert (found.sender_name, found.sender_address) == ("Jürgen, the Great", "j@example.org")
    assert (found.subject, found.message_id) == ("[PATCH] mm: Über all", "folded@x")


def test_raw_bytes_in_headers_and_unknown_charsets_are_shown() -> None:
    found = parsed(
        b"From: J\xfcrgen <j@example.org>\nSubject: \xc3\x9cber\nMessage-ID: <l@x>\n"
        b"Content-Type: text/plain; charset=x-klingon\n\n\xff\xfe text\n"
    )
    assert (found.sender_name, found.subject) == ("Jürgen", "Über")
    assert "text" in found.body


def test_nul_bytes_never_reach_the_database() -> None:
    found = parsed(b"From: a\0b <a@example.org>\nSubject: x\0y\nMessage-ID: <n\0@x>\n\nbo\0dy\n")
    for text in (found.sender_name, found.sender_address, found.subject, found.message_id, found.body):
        assert "\0" not in text


def test_mail_without_sender_is_unusable() -> None:
    assert parsed(b"Subject: [PATCH] x\nMessage-ID: <a@x>\n\n" + DIFF.encode()).reason == "no usable From address"


def test_of_a_huge_mail_the_headers_are_read() -> None:
    found = parsed(mail("[PATCH 1/2] x", message_id="big@x", parent="c@x") + b"x" * MAX_BYTES)
    assert (found.kind, found.reason, found.body) == ("unusable", "larger than 4 MB", "")
    assert (found.message_id, found.sender_address, found.references) == ("big@x", "ada@example.org", ("c@x",))
    assert found.marks.total == 2


def test_of_endless_references_the_nearest_are_kept() -> None:
    ids = [f"{n}@example.org" for n in range(20_000)]
    found = parsed(b"References: " + " ".join(f"<{i}>" for i in ids).encode() + b"\n" + mail("[PATCH] x", DIFF))
    assert (found.kind, found.references) == ("patch", tuple(ids[-200:]))


@pytest.mark.parametrize(
    ("header", "name"),
    [
        (b"From: " + b"x" * 2**20, "From"),
        (b"Subject: " + b"[a]" * 2**19, "Subject"),
        (b"Subject: " + b"=?utf-8?q?a?= " * 2**17, "Subject"),
        (b'Content-Type: multipart/mixed; x="' + b";" * 2**20, "Content-Type"),
    ],
)
def test_header_that_would_cost_time_makes_the_mail_unusable(header: bytes, name: str) -> None:
    found = parsed(b"Message-ID: <long@x>\n" + header + b"\n\n" + DIFF.encode())
    assert found.kind == "unusable"
    assert f"header {name} is longer than" in found.reason


def test_author_line_that_would_cost_time_is_not_read() -> None:
    found = parsed(b"From: a@example.org\nSubject: [PATCH] x\nMessage-ID: <a@x>\n\nFrom: " + b"x" * 2**20 + b"\n")
    assert found.author_address == "a@example.org"


def test_charset_that_would_cost_time_is_read_as_utf_8() -> None:
    head = b"From: a@example.org\nSubject: x\nContent-Type: text/plain; charset=punycode\n\n"
    assert parsed(head + b"a-" + b"b" * 2**21).body.startswith("a-bbb")


@pytest.mark.parametrize(
    ("charset", "written", "read"),
    [
        # What Python takes for a charset and no reader of mails does.
        ("unicode_escape", rb"+/* off \x2a/ evil(); /\x2a on */", r"+/* off \x2a/ evil(); /\x2a on */"),
        ("raw_unicode_escape", rb"+\u002a", r"+\u002a"),
        ("utf-7", b"+ACoALw-", "+ACoALw-"),
        ("rot13", b"+evil", "+evil"),
        # Letters of ASCII that are parts of others in it, or others altogether.
        ("shift_jis", b"+/* \x83\x5c*/ evil();", "+/* \ufffd\\*/ evil();"),
        ("iso-2022-jp", b"+\x1b$B!V\x1b(B", "+\x1b$B!V\x1b(B"),
        ("gb18030", b"+/* \xc4\xe3 */", "+/* \u4f60 */"),
        ("iso-8859-1", b"+/* \xe9 */", "+/* \u00e9 */"),
    ],
)
def test_charset_of_a_text_changes_no_letter_of_ascii(charset: str, written: bytes, read: str) -> None:
    head = f"From: a@example.org\nSubject: [PATCH] x\nContent-Type: text/plain; charset={charset}\n\n".encode()
    assert parsed(head + written + b"\n").body == read + "\n"


def test_text_of_letters_in_turn_costs_memory_in_proportion_to_its_size() -> None:
    """One of ASCII, one that is none: whoever takes such a text apart has millions of pieces."""
    raw = b"From: a@example.org\nContent-Type: text/plain; charset=gb18030\n\n" + b"\x80a" * 2**19
    tracemalloc.start()
    try:
        parsed(raw)
        assert tracemalloc.get_traced_memory()[1] < 24 * len(raw)
    finally:
        tracemalloc.stop()


def test_deeply_nested_parts_are_survived() -> None:
    raw = b"From: a@example.org\nMessage-ID: <deep@x>\n"
    for n in range(3000):
        raw += b'Content-Type: multipart/mixed; boundary="%d"\n\n--%d\n' % (n, n)
    assert parsed(raw).kind in {"other", "unusable"}


@given(st.binary(max_size=2000))
def test_no_bytes_raise(raw: bytes) -> None:
    found = parsed(raw)
    assert found.message_id
    found.subject.encode()


_HEADERS = st.sampled_from(
    ["From", "Subject", "Date", "Message-ID", "References", "In-Reply-To", "Content-Type", "Content-Transfer-Encoding"]
)
_VALUES = st.one_of(
    st.binary(max_size=60),
    st.sampled_from(
        [
            b"=?utf-8?b?/////?=",
            b"=?x?q?=ff?=",
            b"<<>>",
            b"multipart/mixed; boundary=x",
            b"text/plain; charset*=a'b'c",
            b"uuencode",
            b"base64",
            b"Mon, 99 Foo 99999 99:99:99 +9999",
            b"[PATCH 1/2] x",
            b"a@b, <c@d",
        ]
    ),
)


@given(st.lists(st.tuples(_HEADERS, _VALUES), max_size=12), st.binary(max_size=400))
def test_no_headers_raise(headers: list[tuple[str, bytes]], body: bytes) -> None:
    raw = b"".join(name.encode() + b": " + value + b"\n" for name, value in headers) + b"\n" + body
    found = parsed(raw)
    for text in (found.subject, found.sender_name, found.sender_address, found.message_id, *found.references):
        assert "\0" not in text
        text.encode()

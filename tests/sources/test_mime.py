"""Parts, encodings and people of mails as mailers and lists make them."""

from email.message import EmailMessage

import pytest

from server.sources.mail.parser import ParsedMail
from tests.sources.posting import DIFF, mail
from tests.sources.test_parser import parsed

HEAD = b"From: a@example.org\nSubject: [PATCH] x\nMessage-ID: <m@x>\n"


def with_parts(*parts: bytes) -> ParsedMail:
    marks = b"".join(b"--b\n" + part + b"\n" for part in parts)
    return parsed(HEAD + b'Content-Type: multipart/mixed; boundary="b"\n\npreamble\n' + marks + b"--b--\nepilogue\n")


@pytest.mark.parametrize(
    "header",
    [
        b"Content-Type: text/x-patch; charset=utf-8",
        b"Content-Type: text/x-diff",
        b'Content-Type: application/octet-stream; name="0001-x.patch"',
        b"Content-Type: application/octet-stream\nContent-Disposition: attachment;\n filename*=utf-8''0001-x.diff",
        b"Content-Type: text/plain\nContent-Disposition: inline; filename=x.txt",
    ],
)
def test_patch_may_be_attached(header: bytes) -> None:
    found = with_parts(b"\nSee below.\n", header + b"\n\n" + DIFF.encode())
    assert (found.kind, found.diff.paths, found.diff.insertions) == ("patch", ("README",), 1)
    assert "preamble" not in found.body
    assert "epilogue" not in found.body


def test_attached_patch_brings_its_author() -> None:
    patch = b"From " + b"a" * 40 + b" Mon Sep 17 00:00:00 2001\nFrom: Bo <bo@example.org>\nSubject: [PATCH] x\n\n"
    found = with_parts(b"\nSee below.\n", b"Content-Type: text/x-patch\n\n" + patch + DIFF.encode())
    assert (found.author_name, found.author_address) == ("Bo", "bo@example.org")


def test_patch_that_is_sent_inline_and_attached_counts_once() -> None:
    found = with_parts(b"\n" + DIFF.encode(), b"\n" + DIFF.encode())
    assert len(found.diff.files) == 1


@pytest.mark.parametrize("kind", [b"text/html", b"application/octet-stream", b"message/rfc822"])
def test_other_parts_are_not_read(kind: bytes) -> None:
    assert not with_parts(b"\nText.\n", b"Content-Type: " + kind + b"\n\n" + DIFF.encode()).diff


def test_last_part_may_lack_its_end() -> None:
    raw = HEAD + b"Content-Type: multipart/alternative; boundary=b\n\n--b\nContent-Type: text/plain\n\n" + DIFF.encode()
    assert parsed(raw).kind == "patch"


def test_base64_with_a_wrong_end_is_read_as_far_as_it_goes() -> None:
    message = EmailMessage()
    message["From"], message["Subject"] = "a@example.org", "[PATCH] x"
    message.set_content(DIFF, cte="base64")
    raw = message.as_bytes().rstrip()
    assert parsed(raw.rstrip(b"=")[:-1]).kind == "patch"
    assert parsed(raw + b"\n\n_______\nlist footer\n").kind == "patch"


def test_lines_may_end_as_on_dos() -> None:
    found = parsed(mail("[PATCH] x", DIFF).replace(b"\n", b"\r\n"))
    assert (found.kind, found.diff.insertions, found.subject) == ("patch", 1, "[PATCH] x")
    assert "\r" not in found.body


def test_line_that_is_no_header_begins_the_body() -> None:
    found = parsed(b"From: a@example.org\n (folded)\nSubject: x\nno header\nDate: never\n")
    assert (found.subject, found.body) == ("x", "no header\nDate: never\n")


def test_first_line_of_an_mbox_is_passed_over() -> None:
    assert parsed(b"From a@example.org Mon Sep 17 00:00:00 2001\n" + mail("[PATCH] x", DIFF)).kind == "patch"


def test_parts_within_parts_without_end_are_refused_with_the_reason() -> None:
    raw = HEAD + b"".join(b"Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n" % (n, n) for n in range(500))
    found = parsed(raw)
    assert (found.kind, found.message_id) == ("unusable", "m@x")
    assert found.reason == "parts within parts, more than 12 deep"


def test_parts_without_end_are_refused_with_the_reason() -> None:
    assert with_parts(*[b"\n%d\n" % number for number in range(1000)]).kind != "unusable"
    found = with_parts(*[b"\n%d\n" % number for number in range(1001)])
    assert (found.kind, found.message_id) == ("unusable", "m@x")
    assert found.reason == "more than 1000 parts"
    # Those of parts within parts count together.
    inner = b"".join(b"--c\n\n%d\n" % number for number in range(600))
    nested = b"Content-Type: multipart/mixed; boundary=c\n\n" + inner
    assert with_parts(nested, nested).reason == "more than 1000 parts"


@pytest.mark.parametrize(
    ("value", "name", "address"),
    [
        ("ada@example.org", "", "ada@example.org"),
        ("ada@example.org (Ada Author)", "Ada Author", "ada@example.org"),
        ('"Author, Ada" <ada@example.org>', "Author, Ada", "ada@example.org"),
        ("Author, Ada <ada@example.org>", "Author, Ada", "ada@example.org"),
        ('"<eve@example.org>" <ada@example.org>', "<eve@example.org>", "ada@example.org"),
        ("=?utf-8?q?Ada_=3Ceve=40example=2Eorg=3E?= <ada@example.org>", "Ada <eve@example.org>", "ada@example.org"),
        ("=?utf-8?b?w4Rk?= =?utf-8?q?a?= Author <ada@example.org>", "Äda Author", "ada@example.org"),
        ("=?utf-8?b?w4?= =?utf-8?b?oQ==?= <ada@example.org>", "á", "ada@example.org"),
        ("=?x-none?q?Ada?= <ada@example.org>", "Ada", "ada@example.org"),
        ("(" * 3000, "", ""),
        ("nobody", "", ""),
    ],
)
def test_sender_is_read_in_all_forms(value: str, name: str, address: str) -> None:
    found = parsed(f"From: {value}\nSubject: x\n\n".encode())
    assert (found.sender_name, found.sender_address) == (name, address)


def test_author_is_seen_through_the_rewriting_of_a_list() -> None:
    ours = "X-Original-From: Ada Author <ada@example.org>"
    for extra in (ours, "Reply-To: Ada Author <ada@example.org>", "Cc: x@example.org, Ada Author <ada@example.org>"):
        found = parsed(
            mail("[PATCH] x", DIFF, sender="Ada Author via Lists <linux-mm@example.org>", headers=f"{extra}\n")
        )
        assert (found.author_name, found.author_address) == ("Ada Author", "ada@example.org")
        # Anyone can write such a header, so it is no sender that could be trusted.
        assert found.sender_address == "linux-mm@example.org"


def test_name_that_only_looks_rewritten_is_its_senders() -> None:
    found = parsed(
        mail("[PATCH] x", DIFF, sender="Eve via X <eve@example.org>", headers="Reply-To: Eve <ada@example.org>\n")
    )
    assert found.author_address == "eve@example.org"


def test_mercurial_names_the_author() -> None:
    text = "# HG changeset patch\n# User Bo <bo@example.org>\n# Date 1\n# Node ID 1\nx: y\n\n"
    assert parsed(mail("[PATCH 1 of 2] x: y", text + DIFF)).author_address == "bo@example.org"


def test_people_and_lists_of_a_mail_are_known() -> None:
    headers = 'Cc: "Bo, B." <BO@example.org>,\n eve@example.org\nList-Id: Some text <linux-mm.example.org>\n'
    found = parsed(mail("x", headers=headers))
    assert found.recipients == ("linux-mm@example.org", "bo@example.org", "eve@example.org")
    assert found.list_ids == ("linux-mm.example.org",)


def test_subject_is_read_with_broken_encoded_words() -> None:
    raw = b"From: a@example.org\nSubject: =?utf-8?q?[PATCH] x =E4?=\n =?utf-8?q?_y?= \\u0041 =?utf-8?b?!?=\n\n"
    assert parsed(raw).subject == "[PATCH] x \ufffd y \\u0041"

"""What is read as a command of a mail's own sender, and what is not."""

import base64

import pytest

from server.core.errors import DomainError
from server.reports.commands.grammar import HELP, read_order
from server.reports.commands.reply import MOST_LINES, read_reply
from server.reports.models import Verb


def mail(body: str | bytes, *headers: str) -> bytes:
    head = ["From: Ada <ada@example.org>", "Message-ID: <a@example.org>", *headers]
    return "\n".join(head).encode() + b"\n\n" + (body if isinstance(body, bytes) else body.encode())


def told(body: str | bytes, *headers: str) -> list[str]:
    return [line.told for line in read_reply(mail(body, *headers)).lines]


@pytest.mark.parametrize(
    "body",
    [
        "#tidemark retest\n",
        "#tidemark retest",
        "#tidemark   retest  \r\n",
        "#Tidemark\tretest\n",
        "#tidemark\u00a0retest\n",
        "Thanks!\n\n#tidemark retest\n\nRegards\n",
        "On Monday, Tidemark wrote:\n> Split: 41 % slower\n\n#tidemark retest\n",
        "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA512\n\n#tidemark retest\n-----BEGIN PGP SIGNATURE-----\nx\n",
        "#tidemark retest\n-- \n#tidemark stop\n",
        "#tidemark retest\n-----Original Message-----\n#tidemark stop\n",
        "#tidemark retest\n________________________________\n#tidemark stop\n",
        "#tidemark retest\nVon: Tidemark\nGesendet: heute\n#tidemark stop\n",
        "#tidemark retest\nOn Monday, Tidemark wrote:\nSplit\n#tidemark stop\n",
    ],
)
def test_a_line_of_the_sender_is_a_command(body: str) -> None:
    assert told(body) == ["retest"]


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        ("> #tidemark retest\n", ()),
        (">#tidemark retest\n", ()),
        ("  #tidemark retest\n", ()),
        ("try #tidemark retest\n", ()),
        ("+#tidemark retest\n", ()),
        ("-- \n#tidemark retest\n", ()),
        ("<html><p>\n#tidemark retest\n</p>", ("Content-Type: text/html",)),
        ("--b\nContent-Type: text/html\n\n#tidemark retest\n--b--\n", ('Content-Type: multipart/mixed; boundary="b"',)),
        (
            "--b\nContent-Disposition: attachment\n\n#tidemark retest\n--b--\n",
            ('Content-Type: multipart/mixed; boundary="b"',),
        ),
        (
            "--b\n\nsee below\n--b\n\n#tidemark retest\n--b--\n",
            ('Content-Type: multipart/mixed; boundary="b"',),
        ),
        (
            "--b\nContent-Type: message/rfc822\n\nFrom: x@y.z\n\n#tidemark retest\n--b--\n",
            ('Content-Type: multipart/mixed; boundary="b"',),
        ),
    ],
)
def test_what_others_wrote_is_no_command_but_leaves_a_trace(body: str, headers: tuple[str, ...]) -> None:
    reply = read_reply(mail(body, *headers))
    assert reply.lines == ()
    assert "#tidemark retest" in reply.elsewhere


def test_a_mark_that_its_mail_hides_leaves_a_trace() -> None:
    reply = read_reply(mail("#tidemark retest\n", "Content-Transfer-Encoding: base64"))
    assert (reply.lines, reply.elsewhere) == ((), "#tidemark")


def test_a_mail_without_the_mark_leaves_nothing() -> None:
    reply = read_reply(mail("Thanks, tidemark is right.\n"))
    assert (reply.lines, reply.elsewhere, reply.robot) == ((), "", "")


@pytest.mark.parametrize(
    "charset", ["utf-8", "iso-8859-1", "koi8-r", "windows-1252", "gb2312", "shift_jis", "nonsense"]
)
def test_every_charset_and_encoding_is_read(charset: str) -> None:
    kind = f"Content-Type: text/plain; charset={charset}"
    plain = b"#tidemark accept: it pays\n"
    assert told(plain, kind) == ["accept: it pays"]
    assert told(base64.encodebytes(plain), kind, "Content-Transfer-Encoding: base64") == ["accept: it pays"]
    quoted = b"#tide=\nmark=20accept: it pays\n"
    assert told(quoted, kind, "Content-Transfer-Encoding: quoted-printable") == ["accept: it pays"]


def test_a_flowed_line_goes_on_in_the_next_and_a_quoted_one_stays_quoted() -> None:
    flowed = "Content-Type: text/plain; format=flowed"
    assert told("#tidemark accept: a reason that \nis long\n#tidemark retest\n", flowed) == [
        "accept: a reason that is long",
        "retest",
    ]
    assert told("> quoted \n#tidemark retest\n> #tidemark stop\n", flowed) == ["retest"]
    assert told("  #tidemark retest\n", flowed) == []
    assert told("#tidemark accept: rea \nson\n", f"{flowed}; delsp=yes") == ["accept: reason"]


def test_letters_that_nobody_sees_are_left_out() -> None:
    assert told("#tidemark accept: \u202egnorw\u200b\n") == ["accept: gnorw"]


def test_more_commands_than_a_person_gives_are_counted() -> None:
    reply = read_reply(mail("".join(f"#tidemark accept: {number}\n" for number in range(MOST_LINES + 7))))
    assert (len(reply.lines), reply.more) == (MOST_LINES, 7)


@pytest.mark.parametrize(
    "headers",
    [
        ("Auto-Submitted: auto-replied",),
        ("Auto-Submitted: auto-generated; owner=x",),
        ("Precedence: bulk",),
        ("Precedence: junk", "List-Id: <a.example.org>"),
        ("X-Autoreply: yes",),
        ("Return-Path: <>",),
        ("X-Tidemark: series/1",),
        ("Content-Type: multipart/report; boundary=b",),
    ],
)
def test_what_a_program_wrote_is_known(headers: tuple[str, ...]) -> None:
    assert read_reply(mail("#tidemark retest\n", *headers)).robot


@pytest.mark.parametrize(
    "headers",
    [(), ("Auto-Submitted: no",), ("Precedence: bulk", "List-Id: <mm.example.org>"), ("Return-Path: <a@b.c>",)],
)
def test_what_a_person_sent_through_a_list_is_no_program_s(headers: tuple[str, ...]) -> None:
    assert not read_reply(mail("#tidemark retest\n", *headers)).robot


def test_what_cannot_be_read_says_so() -> None:
    deep = b"#tidemark retest\n" + b"".join(
        b'--b%d\nContent-Type: multipart/mixed; boundary="b%d"\n\n' % (n, n + 1) for n in range(40)
    )
    reply = read_reply(mail(deep, 'Content-Type: multipart/mixed; boundary="b0"'))
    assert reply.broken
    assert reply.elsewhere


@pytest.mark.parametrize(
    ("line", "verb", "text"),
    [
        ("retest", Verb.RETEST, ""),
        ("Retest.", Verb.RETEST, ""),
        ("stop", Verb.STOP, ""),
        ("accept: known; see the changelog", Verb.ACCEPT, "known; see the changelog"),
        ("invalid : noise", Verb.INVALID, "noise"),
        ("dup: <a.b@example.org>", Verb.DUP, "a.b@example.org"),
        ("dup: a.b@example.org", Verb.DUP, "a.b@example.org"),
        ("dup: https://lore.example.org/linux-mm/a.b@example.org/T/#u", Verb.DUP, "a.b@example.org"),
        ('fix: "mm: Clear pages once"', Verb.FIX, "mm: Clear pages once"),
    ],
)
def test_an_order_is_read(line: str, verb: Verb, text: str) -> None:
    order = read_order(line)
    assert (order.verb, order.text) == (verb, text)


@pytest.mark.parametrize(
    ("line", "uarchs", "benchmarks"),
    [
        ("test", (), ()),
        ("test on zen3", ("zen3",), ()),
        ("test on Zen3, zen5,", ("zen3", "zen5"), ()),
        ("test bench folio_copy", (), ("folio_copy",)),
        (
            "test on zen3 bench folio_copy will-it-scale/page_fault",
            ("zen3",),
            ("folio_copy", "will-it-scale/page_fault"),
        ),
        ("test bench folio_copy on zen3,zen3", ("zen3",), ("folio_copy",)),
    ],
)
def test_a_test_is_narrowed(line: str, uarchs: tuple[str, ...], benchmarks: tuple[str, ...]) -> None:
    order = read_order(line)
    assert (order.verb, order.uarchs, order.benchmarks) == (Verb.TEST, uarchs, benchmarks)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "reboot",
        ": retest",
        "retest now please",
        "stop: it",
        "accept",
        "accept because",
        "accept: REASON",
        "dup: MESSAGE-ID",
        "dup: nothing",
        "dup: https://lore.example.org/linux-mm/",
        "fix: x",
        "test zen3",
        "test on",
        "test on bench folio_copy",
        "test on a on b",
        "test on $(reboot)",
        "test on UARCH,... bench NAME,...",
        "test on " + " ".join(f"a{n}" for n in range(30)),
    ],
)
def test_what_is_not_understood_is_said(line: str) -> None:
    with pytest.raises(DomainError) as refused:
        read_order(line)
    assert refused.value.code == "not-understood"
    assert len(refused.value.message) < 200


def test_no_line_of_the_help_does_anything_but_those_that_are_whole() -> None:
    whole = {line for line in HELP if line in ("retest", "stop")}
    for line in set(HELP) - whole:
        with pytest.raises(DomainError):
            read_order(line)

"""Ways to spoil a mail. Each takes the mail, another mail, and a source of chance; the same chance, the same result."""

import base64
import re
from collections.abc import Callable, Sequence
from random import Random

from tests.fuzz.lines import HEADERS, HUNKS, VALUES, WORDS

Mutation = Callable[[bytes, bytes, Random], bytes]

# Mutations are done one after the other: those that make a mail longer must not make it too long to try many.
_MOST = 400_000
_HEADER = re.compile(rb"(?m)^[^\s:]+:.*\n?(?:[ \t].*\n?)*")


def _halves(mail: bytes) -> tuple[bytes, bytes]:
    head, found, body = mail.partition(b"\n\n")
    return (head + b"\n", body) if found else (mail, b"")


def _place(mail: bytes, chance: Random) -> int:
    return chance.randrange(len(mail) + 1)


def flipped_bytes(mail: bytes, _: bytes, chance: Random) -> bytes:
    spoiled = bytearray(mail or b"x")
    for _n in range(chance.choice((1, 3, 30))):
        spoiled[chance.randrange(len(spoiled))] = chance.randrange(256)
    return bytes(spoiled)


def spliced(mail: bytes, other: bytes, chance: Random) -> bytes:
    return mail[: _place(mail, chance)] + other[_place(other, chance) :]


def body_of_another(mail: bytes, other: bytes, _: Random) -> bytes:
    return _halves(mail)[0] + b"\n" + _halves(other)[1]


def truncated(mail: bytes, _: bytes, chance: Random) -> bytes:
    return mail[: _place(mail, chance)]


def without_a_piece(mail: bytes, _: bytes, chance: Random) -> bytes:
    start = _place(mail, chance)
    return mail[:start] + mail[start + chance.choice((1, 10, 1000)) :]


def repeated_piece(mail: bytes, _: bytes, chance: Random) -> bytes:
    start = _place(mail, chance)
    piece = mail[start : start + chance.choice((1, 20, 500))]
    return mail[:start] + piece * chance.choice((2, 10, 300)) + mail[start:]


def inserted_word(mail: bytes, _: bytes, chance: Random) -> bytes:
    at = _place(mail, chance)
    return mail[:at] + chance.choice(WORDS) + mail[at:]


def headers_changed(mail: bytes, other: bytes, chance: Random) -> bytes:
    """Headers are dropped, given twice, mixed, or taken from another mail."""
    head, body = _halves(mail)
    found = _HEADER.findall(head)
    if found:
        one = chance.randrange(len(found))
        theirs = _HEADER.findall(_halves(other)[0])
        ways: Sequence[list[bytes]] = (
            found[:one] + found[one + 1 :],
            [*found, found[one]],
            chance.sample(found, len(found)),
            [*found[:one], *theirs, *found[one:]],
        )
        found = chance.choice(ways)
    return b"".join(found) + b"\n" + body


def header_replaced(mail: bytes, _: bytes, chance: Random) -> bytes:
    """One of the headers that are read gets a strange value; it may stand there twice then."""
    name = chance.choice(HEADERS)
    line = name + b": " + chance.choice(VALUES) + b"\n"
    head, body = _halves(mail)
    if chance.random() < 0.7:
        head = re.sub(rb"(?mi)^" + name + rb":.*\n?(?:[ \t].*\n?)*", b"", head)
    return line + head + b"\n" + body


def folded(mail: bytes, _: bytes, chance: Random) -> bytes:
    head, body = _halves(mail)
    places = [found.start() for found in re.finditer(rb" ", head)]
    for at in sorted(chance.sample(places, min(len(places), 10)), reverse=True):
        head = head[:at] + chance.choice((b"\n ", b"\r\n\t", b"\n\t \t", b"\r ")) + head[at:]
    return head + b"\n" + body


def other_charset(mail: bytes, _: bytes, chance: Random) -> bytes:
    names = (
        b"utf-16",
        b"utf-7",
        b"idna",
        b"punycode",
        b"hex",
        b"rot13",
        b"x-none",
        b"cp037",
        b"\xff",
        b"undefined",
        b"",
    )
    head, body = _halves(mail)
    line = b"Content-Type: text/plain; charset=" + chance.choice(names) + b"\n"
    return re.sub(rb"(?mi)^content-type:.*\n?(?:[ \t].*\n?)*", b"", head) + line + b"\n" + body


def encoded(mail: bytes, _: bytes, chance: Random) -> bytes:
    """The body in base64, or said to be; often it breaks off."""
    head, body = _halves(mail)
    content = base64.encodebytes(body) if chance.random() < 0.7 else body
    content = content[: _place(content, chance)] if chance.random() < 0.5 else content
    name = chance.choice((b"base64", b"quoted-printable", b"uuencode", b"x-uue", b"7bit", b"BASE64 "))
    return head + b"Content-Transfer-Encoding: " + name + b"\n\n" + content


def nested(mail: bytes, other: bytes, chance: Random) -> bytes:
    """Mails in mails in parts, with boundaries that are wrong now and then."""
    for depth in range(chance.choice((1, 2, 5, 40))):
        mark = chance.choice((b"b", b"b%d" % depth, b"", b"b b", b"b" * 80))
        kind = chance.choice((b"mixed", b"alternative", b"digest", b"signed", b"related"))
        top = chance.choice((b"", b"Content-Type: message/rfc822\n\n", b"Content-Type: text/x-patch\n"))
        head = b"Content-Type: multipart/" + kind + b'; boundary="' + mark + b'"\n\n--' + mark + b"\n"
        end = chance.choice((b"\n--" + mark + b"--\n", b"\n--" + mark + b"\n" + other[:2000], b""))
        mail = head + top + mail[:_MOST] + end
    return chance.choice((b"", _halves(other)[0])) + mail


def long_line(mail: bytes, _: bytes, chance: Random) -> bytes:
    at = _place(mail, chance)
    return mail[:at] + chance.choice(WORDS) * chance.choice((100, 1000, 5000)) + mail[at:]


def other_hunks(mail: bytes, _: bytes, chance: Random) -> bytes:
    lines = [found.span() for found in re.finditer(rb"(?m)^(?:@@|diff --git|---|\+\+\+|index|rename|Binary) .*$", mail)]
    if not lines:
        return mail + chance.choice(HUNKS)
    start, end = chance.choice(lines)
    return mail[:start] + chance.choice(HUNKS) + mail[end:]


def other_ends_of_lines(mail: bytes, _: bytes, chance: Random) -> bytes:
    return mail.replace(b"\n", chance.choice((b"\r\n", b"\r", b"\n\r", b"\x85", b"\x00\n")))


MUTATIONS: tuple[Mutation, ...] = (
    flipped_bytes,
    spliced,
    body_of_another,
    truncated,
    without_a_piece,
    repeated_piece,
    inserted_word,
    headers_changed,
    header_replaced,
    folded,
    other_charset,
    encoded,
    nested,
    long_line,
    other_hunks,
    other_ends_of_lines,
)


def chance_of(seed: int | str) -> Random:
    return Random(seed)  # noqa: S311 (what it chooses has to be the same again, and guards no secret)


def mutated(mails: Sequence[bytes], chance: Random, others: Sequence[bytes] = ()) -> bytes:
    """One of `mails`, spoiled in one to five ways, with pieces of `others`."""
    mail = chance.choice(mails)
    for _ in range(chance.randint(1, 5)):
        mail = chance.choice(MUTATIONS)(mail, chance.choice(others or mails), chance)[:_MOST]
    return mail

"""What a reply says in its sender's own words: the lines that are commands, and what tells that a program wrote it.

Mails are hostile; nothing here raises. A line counts at its very beginning alone, in the first text that is no file,
above whatever is quoted whole: nobody is taken at another's word.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from server.sources.mail.mime import (
    Headers,
    TextPart,
    UnreadableMailError,
    every_text,
    message_ids,
    person,
    split_headers,
    text_parts,
)
from server.sources.mail.parser import MAX_BYTES

MARK = "#tidemark"
_COMMAND = re.compile(r"#tidemark(?![\w-])\s*(.*)", re.IGNORECASE | re.DOTALL)
_LONGEST = 1000
# More are no commands of a person.
MOST_LINES = 10
# Lines, of those that come before a quotation.
_MOST_READ = 5_000
_HEAD_BYTES = 64 * 1024
# What follows is a signature, or somebody else's mail: -----Original Message-----, Outlook's line, a mailing list's.
_END = re.compile(
    r"--[ ]?|-{3,}+[ ]?[^\s-].{0,80}[^\s-][ ]?-{3,}+|_{20,}+[ ]?|Begin forwarded message:[ ]?", re.IGNORECASE
)
# Longer lines end nothing: reading them would take long where somebody makes them so.
_LONGEST_END = 200
_SIGNED_TEXT = re.compile(r"-----BEGIN PGP SIGNED MESSAGE-----[ ]?")
# An Outlook quotation without any mark.
_QUOTED_FROM = re.compile(r"\*?(?:From|Von|De|Da|Van|Fra|Från|Od|От|发件人|差出人)\*?\s?[:\uff1a]\s?\S", re.IGNORECASE)
_HEADER_LINE = re.compile(r"\*?\w[\w -]{0,20}\*?\s?[:\uff1a]\s?\S")
_ATTRIBUTION = re.compile(
    r".{0,300}(?:wrote|writes|schrieb|écrit|escribió|ha scritto|написал|写道)\s?[:\uff1a]\s*", re.DOTALL
)
_QUOTE = re.compile(r"\s{0,3}(?:[\w-]{0,4}>|\|)")
_FLOWED_QUOTE = re.compile(r">+")
_HOSTILE = (ValueError, LookupError, TypeError, AttributeError, RecursionError, AssertionError, OverflowError)

_OF_ROBOTS = frozenset({"junk", "auto_reply", "auto-reply"})
# What list servers set on whatever they send on, and robots on their own mails.
_OF_ROBOTS_WITHOUT_LIST = frozenset({"bulk", "list"})
_ROBOTS = frozenset({"mailer-daemon", "postmaster"})


@dataclass(frozen=True)
class OwnLine:
    """A command: `number` counts the lines of its text from 1, `told` is what follows the mark."""

    number: int
    text: str
    told: str


@dataclass(frozen=True)
class Reply:
    """`elsewhere` is the first place of the mark that is no command, "" where there is none. `robot` says what tells
    that a program wrote it. `more` commands were left out. `broken` says why nothing could be read.
    """

    lines: tuple[OwnLine, ...] = ()
    more: int = 0
    elsewhere: str = ""
    robot: str = ""
    tidemark: bool = False
    broken: str = ""
    in_reply_to: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    date: str = ""
    body: bytes = b""


def read_reply(raw: bytes) -> Reply:
    """Read one mail of whatever bytes."""
    known = Reply()
    try:
        headers, start = split_headers(raw if len(raw) <= MAX_BYTES else raw[:_HEAD_BYTES])
        known = Reply(
            robot=_robot(headers),
            tidemark=bool(headers.first("x-tidemark")),
            in_reply_to=message_ids(headers.every("in-reply-to")),
            references=message_ids(headers.every("references")),
            date=headers.first("date"),
        )
        if len(raw) > MAX_BYTES:
            raise UnreadableMailError(f"larger than {MAX_BYTES // 2**20} MB")
        if headers.too_long:
            raise UnreadableMailError(headers.too_long)
        read = _with_lines(known, headers, raw[start:])
        # Where what it says of itself hides it: text that calls itself base64.
        return read if read.lines or read.elsewhere else replace(read, elsewhere=_bare(raw))
    except (UnreadableMailError, *_HOSTILE) as error:
        told = str(error) if isinstance(error, UnreadableMailError) else type(error).__name__
        # Whether it held a command nobody can tell; where its bytes show none, it is one mail of many.
        return replace(known, broken=told, elsewhere=_bare(raw))


def _bare(raw: bytes) -> str:
    return MARK if MARK.encode() in raw.lower() else ""


def _with_lines(known: Reply, headers: Headers, content: bytes) -> Reply:
    parts, _ = text_parts(headers, content)
    own = next((part for part in parts if not (part.patch or part.attached)), None)
    found = list(_commands(own)) if own is not None else []
    elsewhere = "" if found else next(_mentions(headers, content), "")
    lines, more = tuple(found[:MOST_LINES]), max(0, len(found) - MOST_LINES)
    return replace(known, lines=lines, more=more, elsewhere=elsewhere, body=content)


def _robot(headers: Headers) -> str:
    """What says that a program wrote it; "" where nothing does."""
    submitted = headers.first("auto-submitted").partition(";")[0].strip().lower()
    if submitted not in {"", "no"}:
        return f"Auto-Submitted: {submitted[:40]}"
    precedence = headers.first("precedence").strip().lower()
    by_list = bool(headers.first("list-id") or headers.first("x-mailing-list"))
    if precedence in _OF_ROBOTS or (precedence in _OF_ROBOTS_WITHOUT_LIST and not by_list):
        return f"Precedence: {precedence}"
    for name in ("x-tidemark", "x-autoreply", "x-autorespond"):
        if headers.first(name):
            return name.title()
    if headers.first("return-path").strip() == "<>":
        return "an empty Return-Path"
    if headers.first("content-type").strip().lower().startswith("multipart/report"):
        return "a report of a mail server"
    sender = person(headers.first("from"))[1].partition("@")[0].lower()
    return f"from {sender}" if sender in _ROBOTS else ""


def _commands(part: TextPart) -> Iterator[OwnLine]:
    for number, line in _own_lines(part):
        if found := _COMMAND.fullmatch(line):
            yield OwnLine(number, _printable(line), _printable(found[1]))


def _printable(text: str) -> str:
    """On one line, without what no reader sees: marks that turn the order of letters around, among others."""
    words = (" ".join(word for word in text.split())).replace("\u200b", "")
    return "".join(letter for letter in words if letter.isprintable())[:_LONGEST].strip()


def _own_lines(part: TextPart) -> Iterator[tuple[int, str]]:
    """The lines before whatever is quoted whole, and their numbers."""
    lines = part.text.split("\n", _MOST_READ)[:_MOST_READ]
    numbered = _unflowed(lines, delsp=part.delsp) if part.flowed else enumerate(lines, start=1)
    texts = [(number, line.rstrip("\r")) for number, line in numbered]
    for place, (number, line) in enumerate(texts):
        if _ends_here([text for _, text in texts[place : place + 4]]):
            return
        yield number, line


def _ends_here(lines: list[str]) -> bool:
    """Whether a signature or a quotation without marks begins with the first of these lines."""
    first, following = lines[0], [line for line in lines[1:] if line.strip()]
    if len(first) > _LONGEST_END or _SIGNED_TEXT.fullmatch(first):
        return False
    if _END.fullmatch(first):
        return True
    if _QUOTED_FROM.match(first):
        return bool(following) and bool(_HEADER_LINE.match(following[0]))
    # Most quote with marks and answer below; who does not has answered above.
    return bool(_ATTRIBUTION.fullmatch(first)) and bool(following) and not _QUOTE.match(following[0])


def _unflowed(lines: list[str], *, delsp: bool) -> Iterator[tuple[int, str]]:
    """Lines as their sender wrote them (RFC 3676), each with the number of its first piece."""
    begun, depth, text = 0, 0, ""
    for number, line in enumerate(lines, start=1):
        quote = _FLOWED_QUOTE.match(line)
        deep = len(quote[0]) if quote else 0
        piece = line[deep:].rstrip("\r")
        piece = piece.removeprefix(" ")
        if begun and deep != depth:
            yield begun, ">" * depth + text
            begun, text = 0, ""
        begun, depth, text = begun or number, deep, text + piece
        if piece == "-- " or not piece.endswith(" ") or len(text) > _LONGEST:
            yield begun, ">" * depth + text
            begun, text = 0, ""
        elif delsp:
            text = text[:-1]
    if begun:
        yield begun, ">" * depth + text


def _mentions(headers: Headers, content: bytes) -> Iterator[str]:
    """Lines of any part that hold the mark, whatever stands before it."""
    for text in every_text(headers, content):
        at = text.lower().find(MARK)
        if at >= 0:
            begin = text.rfind("\n", 0, at) + 1
            end = text.find("\n", at)
            yield _printable(text[max(begin, at - 100) : end if end >= 0 else len(text)][:_LONGEST])

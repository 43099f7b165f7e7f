"""The headers and parts of a mail: split, decoded, and the names, addresses, ids and dates in headers."""

import binascii
import codecs
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parseaddr, parsedate_to_datetime
from itertools import count, islice

# As mails are written, by Python's names. Python has others that are no charsets of mails: one reads `\x2a` as a star,
# another takes time that grows with the square of the text. In these, ASCII is itself.
_PLAIN = frozenset(
    {"utf-8", "ascii", "koi8-r", "koi8-u", "mac-roman", "tis-620"}
    | {f"iso8859-{number}" for number in (*range(1, 12), *range(13, 17))}
    | {f"cp{number}" for number in (437, 850, 852, 866, 874, *range(1250, 1259))}
)
# In these, bytes of ASCII may be parts of other letters.
_MIXED = frozenset(
    {"gb2312", "gbk", "gb18030", "big5", "big5hkscs", "shift_jis", "cp932", "cp949", "cp950", "euc_jp", "euc_kr"}
    | {"iso2022_jp", "iso2022_kr", "hz"}
)
# All bytes that are no letter of ASCII are one.
_ONE_BEYOND_ASCII = bytes(min(byte, 0x80) for byte in range(256))
_WORD = re.compile(r"=\?([^?\s*]{1,40})(?:\*[^?\s]{0,40})?\?([bBqQ])\?([^?]*)\?=")
_NOT_BASE64 = re.compile(r"[^A-Za-z0-9+/]")


def decoded_words(value: str) -> str:
    """`value` with its encoded words read; a word that cannot be read stays as it is."""
    if "=?" not in value:
        return value
    found: list[str] = []
    # Words of one charset that follow each other are one text.
    run, charset, at = b"", "", 0
    for word in _WORD.finditer(value):
        content = _content(word[2], word[3])
        if content is None:
            continue
        between, name = value[at : word.start()], word[1].lower()
        words_meet = at > 0 and not between.strip()
        if not (words_meet and name == charset):
            found.append(text_of(run, charset))
            run = b""
        if not words_meet:
            found.append(between)
        run, charset, at = run + content, name, word.end()
    return "".join([*found, text_of(run, charset), value[at:]])


def _content(encoding: str, text: str) -> bytes | None:
    if encoding in "qQ":
        return binascii.a2b_qp(text.encode("utf-8", "replace"), header=True)
    return base64_bytes(text.encode("utf-8", "replace"))


def base64_bytes(content: bytes) -> bytes | None:
    """What base64 text says; foreign characters and a wrong end are passed over. None where it says nothing."""
    try:
        return binascii.a2b_base64(content)
    except binascii.Error:
        letters = _NOT_BASE64.sub("", content.decode("latin-1"))
        # One letter alone holds less than a byte.
        letters = letters[: len(letters) - 1] if len(letters) % 4 == 1 else letters
    try:
        return binascii.a2b_base64(letters + "=" * (-len(letters) % 4))
    except binascii.Error:
        return None


def text_of(content: bytes, charset: str) -> str:
    """`content` in `charset`; UTF-8 where that is none of mails. What does not fit is shown with marks."""
    name = _codec(charset)
    return content.decode(name if name in _PLAIN | _MIXED else "utf-8", errors="replace") if content else ""


def body_of(content: bytes, charset: str) -> str:
    """The same for what git may apply: it takes a diff's bytes as they are, so a charset changes no letter of ASCII."""
    text = text_of(content, charset)
    if _codec(charset) in _MIXED and _letters_of(text.encode("utf-8", "surrogatepass")) != _letters_of(content):
        return content.decode("utf-8", errors="replace")
    return text


def _letters_of(content: bytes) -> bytes:
    """Its letters of ASCII, with one byte for whatever stands between them. In flat memory: there may be millions."""
    letters = content.translate(_ONE_BEYOND_ASCII)
    while b"\x80\x80" in letters:
        letters = letters.replace(b"\x80\x80", b"\x80")
    return letters


def _codec(charset: str) -> str:
    try:
        return codecs.lookup(charset).name
    except (LookupError, ValueError):
        return ""


OLDEST = datetime(1990, 1, 1, tzinfo=UTC)
_CLOCK_SKEW = timedelta(days=1)
_MAX_ID = 500
_MAX_IDS = 200
_MAX_ADDRESS = 320
_MAX_ADDRESSES = 500
_MAX_DATE = 200
_ID = re.compile(r"<\s*([^<>\s]+)\s*>")
# A word is tried once, from its begin.
_ADDRESS = re.compile(r"(?<![^\s<>@,;:\"()\[\]])[^\s<>@,;:\"()\[\]]++@[^\s<>@,;:\"()\[\]]+")
_NAME_AND_ADDRESS = re.compile(r'([^"<>()@,;:\\]*)<([^\s<>@,;:"()\[\]]+@[^\s<>@,;:"()\[\]]+)>')
_NOT_IN_ADDRESSES = re.compile(r"[\s<>,;:\"()\[\]]+")
# What the standard library raises on dates that only an attacker or a broken program writes.
_HOSTILE = (ValueError, LookupError, TypeError, AttributeError, OverflowError, OSError, AssertionError)


def plain(text: str) -> str:
    """`text` as the database can hold it: valid Unicode without NUL."""
    if "\0" in text:
        text = text.replace("\0", "")
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def decoded(value: str) -> str:
    """A header's text, as it can be stored, its encoded words read, all blanks single."""
    return " ".join(plain(decoded_words(value)).split())


def message_ids(values: Iterable[str]) -> tuple[str, ...]:
    """All ids of some headers in their order; those too long to store are left out."""
    found = [plain(i) for value in values for i in _ids(value)]
    usable = [i for i in found if 0 < len(i) <= _MAX_ID]
    # The newest ancestors stand last.
    return tuple(dict.fromkeys(usable[-_MAX_IDS:]))


def _ids(value: str) -> list[str]:
    found = _ID.findall(value)
    if not found and len(words := value.split()) == 1:
        return [words[0].strip("<>")]
    return found


def person(value: str) -> tuple[str, str]:
    """Name and address of the first person of a header; the address is "" when there is none."""
    one_line = " ".join(value.split())
    # The address is read before the name is decoded, or an encoded comma or bracket could change it.
    simple = _NAME_AND_ADDRESS.fullmatch(one_line)
    if simple:
        name, address = simple[1], simple[2]
    else:
        name, address = _read_by_library(one_line)
        if not _ADDRESS.fullmatch(address):
            found = _ADDRESS.search(one_line)
            address = found[0] if found else ""
            name = name or _before(one_line, address)
    return decoded(name), plain(address) if len(address) <= _MAX_ADDRESS else ""


def _read_by_library(line: str) -> tuple[str, str]:
    try:
        return parseaddr(line)
    except (*_HOSTILE, RecursionError):
        return "", ""


def _before(line: str, address: str) -> str:
    """`Author, Ada <ada@example.org>` without its quotes: the name is all that stands before the address.

    Words may follow it (`# zen3`); older standard libraries read nothing of such a line.
    """
    before, bracket, after = line.partition("<")
    return before.strip(' "') if bracket and address and f"{after} ".startswith(f"{address}> ") else ""


def addresses(values: Iterable[str]) -> tuple[str, ...]:
    """All addresses of some headers, lower case, each once."""
    words = (w for value in values for w in _NOT_IN_ADDRESSES.split(value) if "@" in w)
    found = (plain(w).lower() for w in words if len(w) <= _MAX_ADDRESS and _ADDRESS.fullmatch(w))
    # Some letters become two.
    return tuple(dict.fromkeys(a for a in found if len(a) <= _MAX_ADDRESS))[:_MAX_ADDRESSES]


def list_ids(values: Iterable[str]) -> tuple[str, ...]:
    """The ids of List-Id headers, lower case: what stands in angle brackets, or the one word that is there."""
    return tuple(i.lower() for i in message_ids(values))


def date(value: str, received_at: datetime) -> datetime:
    """The time of a Date header; one that is missing, unreadable or impossible becomes `received_at`."""
    if len(value) > _MAX_DATE:
        return received_at
    try:
        sent = parsedate_to_datetime(plain(value))
        # PostgreSQL takes no time zones as far away as Python does.
        sent = sent.astimezone(UTC) if sent.tzinfo else sent.replace(tzinfo=UTC)
        plausible = OLDEST <= sent <= received_at + _CLOCK_SKEW
    except _HOSTILE:
        return received_at
    return sent if plausible else received_at


# People never need so much, and what reads these headers is slow with long texts.
_LONGEST = {b"from": 4_000, b"subject": 8_000, b"content-type": 4_000, b"content-disposition": 4_000}
# Of others so much is read: the first addresses, and the nearest ancestors, which stand last.
_READ_OF_OTHERS = 100_000
# Mails have one or two of each; a program that repeats one thousands of times is broken.
_MOST_OF_A_KIND = 50
_READ = frozenset(
    {
        *(b"message-id", b"in-reply-to", b"references", b"from", b"subject", b"date", b"to", b"cc", b"reply-to"),
        *(b"x-original-from", b"list-id", b"auto-submitted", b"x-tidemark"),
        *(b"x-mailing-list", b"precedence", b"return-path", b"x-autoreply", b"x-autorespond"),
        *(b"content-type", b"content-disposition", b"content-transfer-encoding"),
    }
)
_HEADER_LINES = re.compile(rb"(?>[!-9;-~]++:[^\n]*+(?:\n|\Z))*+")


class UnreadableMailError(ValueError):
    """A mail that only an attacker or a broken program writes; the message says what is wrong with it."""


@dataclass(frozen=True)
class Headers:
    """Values by lower-case name, unfolded, as they stand. `too_long` says which header was left out, "" if none."""

    values: dict[str, list[str]] = field(default_factory=dict)
    too_long: str = ""

    def first(self, name: str) -> str:
        found = self.values.get(name)
        return found[0] if found else ""

    def every(self, name: str) -> list[str]:
        return self.values.get(name, [])


def split_headers(raw: bytes) -> tuple[Headers, int]:
    """The headers at the start of `raw`, and where the body begins: after an empty line, or at a line that is none."""
    end, body = _blank_line(raw)
    lines = raw[:end].replace(b"\r\n", b"\n").replace(b"\n ", b" ").replace(b"\n\t", b"\t")
    # The first line of an mbox entry is no header, but the others follow it.
    first = lines.find(b"\n") + 1 if lines.startswith((b"From ", b">From ")) else 0
    found = _HEADER_LINES.match(lines, first)
    if found and found.end() < len(lines):
        body = _start_of_line(raw, lines.count(b"\n", 0, found.end()))
    values, too_long = _values(lines[first : found.end() if found else first])
    return Headers(values, too_long), body


def _values(lines: bytes) -> tuple[dict[str, list[str]], str]:
    values: dict[str, list[str]] = {}
    too_long = ""
    for line in lines.split(b"\n"):
        name, _, value = line.partition(b":")
        key = name.lower()
        if key in _READ:
            found = values.setdefault(key.decode(), [])
            longest = _LONGEST.get(key)
            if longest and len(value) > longest:
                too_long = too_long or f"header {name.decode()} is longer than {longest} characters"
            elif len(found) < _MOST_OF_A_KIND:
                found.append(_text(value[-_READ_OF_OTHERS:] if key == b"references" else value[:_READ_OF_OTHERS]))
    return values, too_long


def _blank_line(raw: bytes) -> tuple[int, int]:
    """Where the headers end, and where what follows the empty line after them begins."""
    if raw.startswith((b"\n", b"\r\n")):
        return 0, raw.index(b"\n") + 1
    plain = raw.find(b"\n\n")
    dos = raw.find(b"\n\r\n", 0, plain if plain >= 0 else len(raw))
    if dos >= 0:
        return dos, dos + 3
    return (plain, plain + 2) if plain >= 0 else (len(raw), len(raw))


def _start_of_line(raw: bytes, number: int) -> int:
    """Where the unfolded line `number` of `raw` begins."""
    at = 0
    for _ in range(number):
        at = raw.index(b"\n", at) + 1
        while raw[at : at + 1] in (b" ", b"\t"):
            at = raw.index(b"\n", at) + 1
    return at


def _text(value: bytes) -> str:
    """Bytes that are not UTF-8 are read as Latin-1."""
    value = value.strip()
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value.decode("latin-1")


Person = tuple[str, str]
_IN_BODY = ("From:", "Subject:", "Date:")
_MERCURIAL = "# HG changeset patch"
# What `git format-patch` writes first; it is there when its file was attached.
_FORMAT_PATCH = re.compile(r"From [0-9a-f]{40} ")
# How lists that rewrite senders (DMARC) name them: 'Ada Author' via Some List.
_VIA = re.compile(r"'?([^']{1,200}?)'? via(?: .{0,200})?|'([^']{1,200})'")
_MAX_LINE = 1_000
_MAX_LINES = 12
# Reading each takes time, and no one copies a patch to more.
_MOST_PEOPLE = 200


def author_of(text: str, sender: Person, headers: Headers) -> Person:
    """Who the patch is from: whom its text names first of all, else the sender, seen through a list's rewriting.

    No proof of anything: anyone can write such lines and headers.
    """
    return author_in(text) or rewritten(sender, headers) or sender


def author_in(text: str) -> Person | None:
    """The in-body From of git, or Mercurial's user."""
    lines = text.lstrip()[: _MAX_LINE * _MAX_LINES].split("\n", _MAX_LINES)[:_MAX_LINES]
    mercurial = lines[0].startswith(_MERCURIAL)
    start = "# User" if mercurial else "From:"
    for line in lines[1:] if mercurial or _FORMAT_PATCH.match(lines[0]) else lines:
        if line.startswith(start) and len(line) <= _MAX_LINE:
            found = person(line[len(start) :])
            return found if found[1] else None
        if not line.startswith("#" if mercurial else _IN_BODY):
            return None
    return None


def rewritten(sender: Person, headers: Headers) -> Person | None:
    """Who wrote to a list that put its own address into From; None where it did not, or does not say."""
    name, address = sender
    found = _VIA.fullmatch(name)
    if not found or address.lower() not in addresses([*headers.every("to"), *headers.every("cc")]):
        return None
    wanted = (found[1] or found[2]).lower()
    original = person(headers.first("x-original-from")[:_MAX_LINE])
    if original[1]:
        return original
    named = (one for value in [*headers.every("reply-to"), *headers.every("cc")] for one in value.split(","))
    people = (person(one[:_MAX_LINE]) for one in islice(named, _MOST_PEOPLE))
    return next((p for p in people if p[0].lower() == wanted and p[1] and p[1].lower() != address.lower()), None)


# The parts of a mail: which of them are text that people read or a patch, in the order of the mail.
#
# Its own reader because time must grow with the length of the mail alone: the standard library's looks at each line
# once for every part around it. So parts within parts are read to a depth that no person's mail has.

_DEEPEST = 12
# Each part costs as much as some kilobytes of text; a mail of four megabytes has room for hundreds of thousands.
_MOST_PARTS = 1000
_TEXT = "text/plain"
_PATCH_TYPES = frozenset({"text/x-patch", "text/x-diff", "application/x-patch", "application/x-diff"})
_PATCH_NAMES = (".patch", ".diff")
# What people attach files as. A signature or a picture is none, whatever its name.
_NAMED_TYPES = ("text/", "application/octet-stream")
_PARAMETER = re.compile(r';\s*([^\s=;*]+)(\*[^\s=;]*)?\s*=\s*("(?:[^"\\]|\\.)*"|[^;\s]*)')
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


@dataclass(frozen=True)
class TextPart:
    """`attached` as a file; `flowed`: lines that end with a blank go on in the next, and with `delsp` without it."""

    text: str
    patch: bool
    attached: bool = field(default=False, compare=False)
    flowed: bool = field(default=False, compare=False)
    delsp: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class _Type:
    name: str
    parameters: dict[str, str]


def text_parts(headers: Headers, body: bytes) -> tuple[list[TextPart], bool]:
    """The parts of text of a mail, decoded, and whether it has no others.

    Raises UnreadableMailError for one that has them without end.
    """
    parts: dict[TextPart, None] = {}
    found = 0
    for part_headers, content in _leaves(headers, body, 0, count()):
        found += 1
        kind = _typed(part_headers.first("content-type"), _TEXT)
        name = _file_name(kind, part_headers)
        named = name.endswith(_PATCH_NAMES) and kind.name.startswith(_NAMED_TYPES)
        patch = named or kind.name in _PATCH_TYPES
        if patch or kind.name == _TEXT:
            # A patch that is in the text and attached, too, is one patch.
            parts.setdefault(_text_part(part_headers, kind, content, patch=patch))
    return list(parts), found == len(parts)


def _text_part(headers: Headers, kind: "_Type", content: bytes, *, patch: bool) -> TextPart:
    return TextPart(
        _decoded(headers, kind, content),
        patch,
        attached=headers.first("content-disposition").partition(";")[0].strip().lower() == "attachment",
        flowed=kind.parameters.get("format", "").strip().lower() == "flowed",
        delsp=kind.parameters.get("delsp", "").strip().lower() == "yes",
    )


def every_text(headers: Headers, body: bytes) -> Iterator[str]:
    """All that is some text, HTML and attached files too, decoded. Raises as `text_parts` does."""
    for part_headers, content in _leaves(headers, body, 0, count()):
        kind = _typed(part_headers.first("content-type"), _TEXT)
        if kind.name.startswith(("text/", "message/")):
            yield _decoded(part_headers, kind, content)


def _leaves(headers: Headers, body: bytes, depth: int, counted: Iterator[int]) -> Iterator[tuple[Headers, bytes]]:
    kind = _typed(headers.first("content-type"), _TEXT)
    boundary = kind.parameters.get("boundary", "") if kind.name.startswith("multipart/") else ""
    if not boundary:
        yield headers, body
        return
    if depth >= _DEEPEST:
        raise UnreadableMailError(f"parts within parts, more than {_DEEPEST} deep")
    for part in _split(body, boundary.encode("utf-8", "replace")):
        if next(counted) >= _MOST_PARTS:
            raise UnreadableMailError(f"more than {_MOST_PARTS} parts")
        inner, start = split_headers(part)
        yield from _leaves(inner, part[start:], depth + 1, counted)


def _split(body: bytes, boundary: bytes) -> Iterator[bytes]:
    """What stands between the lines that are the boundary; a last part without an end goes to the end."""
    mark = b"--" + boundary
    start, at = -1, 0
    while (at := body.find(mark, at)) >= 0:
        after = at + len(mark)
        if at and body[at - 1] != ord("\n"):
            at = after
            continue
        line_end = body.find(b"\n", after)
        rest = body[after : line_end if line_end >= 0 else len(body)].strip()
        if rest not in (b"", b"--"):
            at = after
            continue
        if start >= 0:
            yield body[start : max(start, at - 1)]
        if rest or line_end < 0:
            return
        start = at = line_end + 1
    if start >= 0:
        yield body[start:]


def _typed(value: str, otherwise: str) -> _Type:
    name = value.partition(";")[0].strip().lower()
    parameters: dict[str, str] = {}
    for found in _PARAMETER.finditer(value):
        text = found[3]
        if text.startswith('"'):
            text = _ESCAPED.sub(r"\1", text[1:-1])
        if found[2]:
            # RFC 2231: charset'language'text, or one piece of a longer text.
            text = text.rpartition("'")[2]
        key = found[1].lower()
        parameters[key] = parameters.get(key, "") + text if found[2] else parameters.get(key, text)
    return _Type(name if "/" in name else otherwise, parameters)


def _file_name(kind: _Type, headers: Headers) -> str:
    placed = _typed(headers.first("content-disposition"), "")
    return decoded_words(placed.parameters.get("filename") or kind.parameters.get("name", "")).strip().lower()


def _decoded(headers: Headers, kind: _Type, content: bytes) -> str:
    encoding = headers.first("content-transfer-encoding").lower()
    if encoding == "base64":
        content = base64_bytes(content) or b""
    elif encoding == "quoted-printable":
        content = binascii.a2b_qp(content)
    text = body_of(content, kind.parameters.get("charset") or "utf-8")
    return plain(text.replace("\r\n", "\n"))

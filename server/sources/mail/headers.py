"""The header block of a mail or of one of its parts: split into the headers that the service reads."""

import re
from dataclasses import dataclass, field

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

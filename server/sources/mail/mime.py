"""The parts of a mail: which of them are text that people read or a patch, in the order of the mail.

Its own reader because time must grow with the length of the mail alone: the standard library's looks at each line once
for every part around it. So parts within parts are read to a depth that no person's mail has.
"""

import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from server.sources.mail.encoded_words import base64_bytes, body_of, decoded_words
from server.sources.mail.headers import Headers, UnreadableMailError, split_headers
from server.sources.mail.words import plain

_DEEPEST = 12
# Each part costs as much as some kilobytes of text; a mail of four megabytes has room for hundreds of thousands.
_MOST_PARTS = 1000
_PLAIN = "text/plain"
_PATCH_TYPES = frozenset({"text/x-patch", "text/x-diff", "application/x-patch", "application/x-diff"})
_PATCH_NAMES = (".patch", ".diff")
# What people attach files as. A signature or a picture is none, whatever its name.
_NAMED_TYPES = ("text/", "application/octet-stream")
_PARAMETER = re.compile(r';\s*([^\s=;*]+)(\*[^\s=;]*)?\s*=\s*("(?:[^"\\]|\\.)*"|[^;\s]*)')
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


@dataclass(frozen=True)
class TextPart:
    text: str
    patch: bool


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
        kind = _typed(part_headers.first("content-type"), _PLAIN)
        name = _file_name(kind, part_headers)
        named = name.endswith(_PATCH_NAMES) and kind.name.startswith(_NAMED_TYPES)
        patch = named or kind.name in _PATCH_TYPES
        if patch or kind.name == _PLAIN:
            # A patch that is in the text and attached, too, is one patch.
            parts[TextPart(_decoded(part_headers, kind, content), patch)] = None
    return list(parts), found == len(parts)


def _leaves(headers: Headers, body: bytes, depth: int, counted: Iterator[int]) -> Iterator[tuple[Headers, bytes]]:
    kind = _typed(headers.first("content-type"), _PLAIN)
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

"""The text of a mail: its parts, the trailers in it, and what its author says that it stands on."""

import binascii
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from urllib.parse import parse_qs, unquote, urlsplit

from server.sources.mail.headers import (
    Headers,
    UnreadableMailError,
    base64_bytes,
    body_of,
    decoded_words,
    message_ids,
    person,
    plain,
    split_headers,
)

# The parts of a mail: which of them are text that people read or a patch, in the order of the mail.
#
# Its own reader because time must grow with the length of the mail alone: the standard library's looks at each line
# once for every part around it. So parts within parts are read to a depth that no person's mail has.

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


_TRAILER = re.compile(r"[ \t]{0,8}([A-Za-z][A-Za-z0-9-]{1,40}):[ \t]{1,99}(\S.*)")
# Trailers without a person.
_FACTS = frozenset({"fixes", "link", "closes", "buglink", "obsoleted-by"})
# A person may follow, but it says nothing of the patch.
_NO_TRAILERS = frozenset({"from", "author", "to", "date", "subject", "email", "e-mail", "mail", "phone", "message-id"})
_NOT_IN_REPLIES = _NO_TRAILERS | {"cc"}
_PERSON = re.compile(r"[^\s@<>]@[^\s@<>]")
_ADDRESS_ALONE = re.compile(r"\s{0,8}<[^<>\s]+@[^<>\s]+>\s*")
_COMMIT = re.compile(r"[0-9a-f]{6,40}\b")
# What mailers make of an address when they turn HTML into text: <ada@example.org<mailto:ada@example.org>>.
_MADE_OF_HTML = re.compile(r"<mailto:[^<>\s]{1,320}>(?=>)")
_LONGEST = 1_000
_MOST = 500


def trailers_of_patch(text: str) -> tuple[str, ...]:
    """The trailers of a commit message, as written: those at its end, where whole paragraphs may be trailers."""
    found: list[str] = []
    for lines in reversed(_paragraphs(text)):
        trailers = list(_trailers(lines, _NO_TRAILERS))
        found[:0] = trailers
        if len(trailers) < len(lines) and found:
            break
        if not trailers:
            break
    return tuple(dict.fromkeys(found))[:_MOST]


def trailers_of_reply(text: str, sender: tuple[str, str]) -> tuple[str, ...]:
    """The trailers that `sender` gives in an answer, as written. Quoted lines and signatures do not count, nor what
    one person says in the name of another.
    """
    lines = (line for line in text.partition("\n-- \n")[0].split("\n") if not line.startswith(">"))
    name, address = sender[0].lower(), sender[1].lower()
    found: dict[str, None] = {}
    for trailer in _trailers(lines, _NOT_IN_REPLIES):
        key, _, value = trailer.partition(":")
        if key.lower() not in _FACTS:
            said_name, said_address = person(value)
            if said_address.lower() != address and not (name and said_name.lower() == name):
                continue
        found[trailer] = None
    return tuple(found)[:_MOST]


def _paragraphs(text: str) -> list[list[str]]:
    """The paragraphs of a patch's commit message: all before the line `---` or the diff."""
    found: list[list[str]] = [[]]
    for line in text.split("\n"):
        if line.startswith(("--- ", "diff -", "Index: ")) or line.rstrip() == "---":
            break
        if line.strip():
            found[-1].append(line)
        elif found[-1]:
            found.append([])
    return [paragraph for paragraph in found if paragraph]


def _trailers(lines: Iterable[str], unwanted: frozenset[str]) -> Iterator[str]:
    for line in _unwrapped(lines):
        found = _matched(line)
        if found and (name := found[1].lower()) not in unwanted and _is_trailer(name, found[2]):
            trailer = f"{found[1]}: {_MADE_OF_HTML.sub('', found[2]).rstrip()}"
            if len(trailer) <= _LONGEST:
                yield trailer


def _matched(line: str) -> re.Match[str] | None:
    return _TRAILER.fullmatch(line) if ": " in line and len(line) <= _LONGEST else None


def _unwrapped(lines: Iterable[str]) -> Iterator[str]:
    """Mailers break long lines: before the address of a person, or in the title of the commit that is mended."""
    broken = ""
    for line in lines:
        if broken and (_ADDRESS_ALONE.fullmatch(line) or (broken.startswith("Fixes:") and line.rstrip().endswith(")"))):
            yield f"{broken} {line.strip()}"
            broken = ""
            continue
        if broken:
            yield broken
        broken = line.rstrip() if _is_broken(line) else ""
        if not broken:
            yield line
    if broken:
        yield broken


def _is_broken(line: str) -> bool:
    found = _matched(line)
    if not found:
        return False
    if found[1] == "Fixes":
        return "(" in line and not line.rstrip().endswith(")")
    return found[1].lower().endswith("-by") and "@" not in line


def _is_trailer(name: str, value: str) -> bool:
    if name in _FACTS:
        return name != "fixes" or bool(_COMMIT.match(value))
    return bool(_PERSON.search(value)) and "://" not in value


# What names something that cannot be looked up is kept under this name: a series must not lose it without a word.
UNKNOWN = "unknown"
# People write tags and short ids by hand: what cannot be found is told as such, and not lost.
_BASE_COMMIT = re.compile(r"^base-commit:[ \t]*([!-~]{1,40})", re.MULTILINE)
_CHANGE_ID = re.compile(r"^change-id:[ \t]*(\S{1,200})[ \t]*$", re.MULTILINE)
_PREREQUISITE = re.compile(
    r"^(?:prerequisite-(patch-id|change-id|message-id)|depends-on|based-on):[ \t]*(\S[^\n]{0,1000})$",
    re.MULTILINE | re.IGNORECASE,
)
_PATCH_ID = re.compile(r"[0-9a-f]{40}\b")
_URL = re.compile(r"https?://[^\s<>\"]+", re.IGNORECASE)
# So much can be stored of one.
_LONGEST_NEED = 300
# An author names a handful. Each is looked up before a series is applied.
_MOST_NEEDS = 200


@dataclass(frozen=True)
class StatedNeeds:
    """`base_commit` is as it was written, of at most 40 characters.

    `prerequisites` are "patch-id:HEX", "change-id:ID", "message-id:ID" and "unknown:TEXT", in the order of the text.
    """

    base_commit: str = ""
    change_id: str = ""
    prerequisites: tuple[str, ...] = ()


def needs_of(text: str) -> StatedNeeds:
    """Read the lines that `git format-patch --base`, b4 and people write; quoted lines do not count."""
    lower = text.lower()
    base = _BASE_COMMIT.search(text) if "base-commit:" in lower else None
    change = _CHANGE_ID.search(text) if "change-id:" in lower else None
    found: dict[str, None] = {}
    if "prerequisite-" in lower or "depends-on:" in lower or "based-on:" in lower:
        for line in _PREREQUISITE.finditer(text):
            told = line[2].strip()
            needed = _needed((line[1] or "message-id").lower(), told)
            if not 0 < len(needed) <= _LONGEST_NEED:
                needed = f"{UNKNOWN}:{' '.join(told.split())}"[:_LONGEST_NEED]
            found[needed] = None
    return StatedNeeds(base[1] if base else "", change[1] if change else "", few_needs(found))


def few_needs(needs: Iterable[str]) -> tuple[str, ...]:
    """As many as are looked up, each once; the last says how many more there were."""
    known = list(dict.fromkeys(needs))
    more = len(known) - _MOST_NEEDS + 1
    return tuple(known) if more <= 1 else (*known[: _MOST_NEEDS - 1], f"{UNKNOWN}:{more} more")


def is_unknown(need: str) -> bool:
    """Whether nothing that is stored here can be found by it."""
    return need.startswith(f"{UNKNOWN}:")


def _needed(kind: str, value: str) -> str:
    """The name under which it can be looked up; "" where there is none."""
    word = value.split(maxsplit=1)[0]
    if kind == "patch-id":
        return f"patch-id:{word}" if _PATCH_ID.fullmatch(word) else ""
    if kind == "change-id":
        return f"change-id:{word}"
    if url := _URL.search(value):
        named = _id_in(url[0])
    else:
        named = next(iter(message_ids([value if value.startswith("<") else word])), "")
    return f"message-id:{named}" if "@" in named.strip("@") else ""


def _id_in(url: str) -> str:
    """The Message-ID that the address of a mail holds, in an archive or at patchwork; "" where it holds none.

    /r/ID, /LIST/ID/T/, /project/NAME/patch/ID/, ?i=ID: a part with an @, whatever stands around it. Patchwork's own
    numbers mean nothing elsewhere.
    """
    try:
        parts = urlsplit(url)
        words = [*map(unquote, parts.path.split("/")), *parse_qs(parts.query).get("i", [])]
    except ValueError:
        return ""
    return next(iter(message_ids(word for word in words if "@" in word.strip("@"))), "")

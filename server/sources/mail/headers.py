"""Headers as people meant them, out of whatever bytes a program wrote."""

import codecs
import email.message
import email.policy
import re
from email.errors import HeaderParseError
from email.header import decode_header
from email.utils import parseaddr

_MAX_ID = 500
_MAX_IDS = 200
_MAX_ADDRESS = 320
# The standard library takes time that grows with the square of these headers, and people never need so much.
_LONGEST = {"from": 4_000, "subject": 8_000, "content-type": 4_000, "content-disposition": 4_000}
_LONGEST_OF_OTHERS = 100_000
# Made for names of hosts; decoding takes time that grows with the square of the text.
_HOST_NAME_CODECS = frozenset({"punycode", "idna"})
_ID = re.compile(r"<\s*([^<>\s]+)\s*>")
_ADDRESS = re.compile(r"[^\s<>@,;:\"()\[\]]+@[^\s<>@,;:\"()\[\]]+")


class HeaderTooLongError(ValueError):
    """A header that only an attacker or a broken program writes."""


class ShortHeaders(email.policy.Compat32):
    """Reads a mail and all its parts; raises HeaderTooLongError before a long header can cost time."""

    def header_source_parse(self, sourcelines: list[str]) -> tuple[str, str]:
        name, value = super().header_source_parse(sourcelines)
        longest = _LONGEST.get(name.lower(), _LONGEST_OF_OTHERS)
        if len(value) > longest:
            raise HeaderTooLongError(f"header {name[:80]} is longer than {longest} characters")
        return name, value


def plain(text: str) -> str:
    """`text` as the database can hold it: valid Unicode without NUL."""
    return text.replace("\0", "").encode("utf-8", "replace").decode("utf-8")


def raw_header(mail: email.message.Message, name: str) -> str:
    """The first header `name` as it stands, "" if there is none; bytes that are not UTF-8 are read as Latin-1."""
    for key, value in mail.raw_items():
        if key.lower() == name:
            content = str(value).encode("utf-8", "surrogateescape")
            try:
                return content.decode("utf-8")
            except UnicodeDecodeError:
                return content.decode("latin-1")
    return ""


def decoded(value: str) -> str:
    """`value` with its encoded words (RFC 2047) read; one that cannot be read stays as it is."""
    try:
        parts = decode_header(value)
    except (HeaderParseError, ValueError):
        return plain(value)
    return plain("".join(_part(content, charset) for content, charset in parts))


def _part(content: bytes | str, charset: str | None) -> str:
    if isinstance(content, str):
        return content
    if charset is None:
        # How the standard library hands out the words between encoded ones.
        return content.decode("raw-unicode-escape", errors="replace")
    return text_of(content, charset)


def text_of(content: bytes, charset: str) -> str:
    """`content` in `charset`; UTF-8 where that is unknown. What does not fit is shown with marks."""
    try:
        if codecs.lookup(charset).name not in _HOST_NAME_CODECS:
            return content.decode(charset, errors="replace")
    except (LookupError, ValueError):
        pass
    # Diffs are ASCII nearly everywhere.
    return content.decode("utf-8", errors="replace")


def message_ids(value: str) -> tuple[str, ...]:
    """All ids of a header in its order; those too long to store are left out."""
    found = [plain(i) for i in _ID.findall(value)]
    if not found and len(words := value.split()) == 1:
        found = [plain(words[0].strip("<>"))]
    usable = [i for i in found if 0 < len(i) <= _MAX_ID]
    # The newest ancestors stand last.
    return tuple(dict.fromkeys(usable[-_MAX_IDS:]))


def addresses_of(value: str) -> tuple[str, str]:
    """Name and address of the first sender; the address is "" when there is none."""
    one_line = " ".join(value.split())
    # The address is read before the name is decoded, or an encoded comma or bracket could change it.
    name, address = parseaddr(one_line)
    if not _ADDRESS.fullmatch(address):
        found = _ADDRESS.search(one_line)
        address = found[0] if found else ""
    return " ".join(decoded(name).split()), plain(address) if len(address) <= _MAX_ADDRESS else ""

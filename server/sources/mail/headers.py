"""Headers as people meant them, out of whatever bytes a program wrote."""

import email.message
import re
from email.errors import HeaderParseError
from email.header import decode_header
from email.utils import parseaddr

_MAX_ID = 500
_MAX_IDS = 200
_MAX_ADDRESS = 320
_ID = re.compile(r"<\s*([^<>\s]+)\s*>")
_ADDRESS = re.compile(r"[^\s<>@,;:\"()\[\]]+@[^\s<>@,;:\"()\[\]]+")


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
    try:
        return content.decode(charset, errors="replace")
    except (LookupError, ValueError):
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

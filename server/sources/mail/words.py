"""Small texts out of headers: names, addresses, Message-IDs, dates."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from email.utils import parseaddr, parsedate_to_datetime

from server.sources.mail.encoded_words import decoded_words

OLDEST = datetime(1990, 1, 1, tzinfo=UTC)
_CLOCK_SKEW = timedelta(days=1)
_MAX_ID = 500
_MAX_IDS = 200
_MAX_ADDRESS = 320
_MAX_ADDRESSES = 500
_MAX_DATE = 200
_ID = re.compile(r"<\s*([^<>\s]+)\s*>")
_ADDRESS = re.compile(r"[^\s<>@,;:\"()\[\]]+@[^\s<>@,;:\"()\[\]]+")
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
    found = (plain(w).lower() for w in words if _ADDRESS.fullmatch(w) and len(w) <= _MAX_ADDRESS)
    return tuple(dict.fromkeys(found))[:_MAX_ADDRESSES]


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

"""What a series needs to know of its mails, read from their stored bytes one at a time."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from server.sources.mail.body import UNKNOWN
from server.sources.mail.parser import ParsedMail, parse_mail
from server.sources.models import Message

# No path of a kernel and no id of a series is longer.
_LONGEST_PATH = 1024
_LONGEST_PREREQUISITE = 300
# An author names a handful. Each is looked up before a series is applied.
_MOST_PREREQUISITES = 200
_AT_A_TIME = 10
# As long as the column, and more than anybody gives in one mail; in characters of all of them, too.
_LONGEST_TRAILER = 1000
_MOST_TRAILERS = 200
_MOST_OF_TRAILERS = 8 * 1024


@dataclass(frozen=True)
class MailFacts:
    """Of one patch or cover letter: author and diffstat, and what it announces of its series."""

    author_name: str
    author_address: str
    files: int = 0
    insertions: int = 0
    deletions: int = 0
    paths: tuple[str, ...] = ()
    base_commit: str = ""
    change_id: str = ""
    prerequisites: tuple[str, ...] = ()

    @property
    def columns(self) -> dict[str, Any]:
        """What the row of a patch has of it."""
        return {
            "author_name": self.author_name,
            "author_address": self.author_address,
            "files": self.files,
            "insertions": self.insertions,
            "deletions": self.deletions,
            "paths": list(self.paths),
        }


def read_facts(messages: Iterable[int]) -> dict[int, MailFacts]:
    """The facts of these mails by their keys. A deleted mail has none but its sender."""
    rows = Message.objects.filter(pk__in=list(messages)).order_by("pk")
    return {row.pk: _facts(row) for row in rows.iterator(chunk_size=_AT_A_TIME)}


def _facts(message: Message) -> MailFacts:
    if message.kind == Message.Kind.DELETED:
        return MailFacts(message.sender_name, message.sender_address)
    return facts_in(parse_mail(bytes(message.raw), blob=message.blob, received_at=message.received_at))


def facts_in(parsed: ParsedMail) -> MailFacts:
    """The facts of a mail that is read already."""
    return MailFacts(
        author_name=parsed.author_name,
        author_address=parsed.author_address,
        files=len(parsed.diff.files),
        insertions=parsed.diff.insertions,
        deletions=parsed.diff.deletions,
        paths=tuple(path for path in parsed.diff.paths if len(path) <= _LONGEST_PATH),
        base_commit=parsed.base_commit,
        change_id=parsed.change_id,
        prerequisites=_prerequisites(parsed),
    )


def _prerequisites(parsed: ParsedMail) -> tuple[str, ...]:
    return _some(name for name in parsed.prerequisites if len(name) <= _LONGEST_PREREQUISITE)


def _some(prerequisites: Iterable[str]) -> tuple[str, ...]:
    """As many as are looked up; the last says how many more there were."""
    known = list(dict.fromkeys(prerequisites))
    more = len(known) - _MOST_PREREQUISITES + 1
    return tuple(known) if more <= 1 else (*known[: _MOST_PREREQUISITES - 1], f"{UNKNOWN}:{more} more")


def kept_trailers(parsed: ParsedMail) -> list[str]:
    """The trailers of a mail that are stored with it."""
    kept = (trailer for trailer in parsed.trailers[:_MOST_TRAILERS] if len(trailer) <= _LONGEST_TRAILER)
    return within(kept, _MOST_OF_TRAILERS)


def within(texts: Iterable[str], longest: int) -> list[str]:
    """The first of these texts, as long as they have `longest` characters together."""
    lengths = accumulate(map(len, texts := list(texts)))
    return [text for text, length in zip(texts, lengths, strict=True) if length <= longest]


def announced(mails: Iterable[MailFacts]) -> dict[str, Any]:
    """The columns of a series that its mails tell, the cover letter first: the first word counts."""
    known = list(mails)
    return {
        "base_commit": next((mail.base_commit for mail in known if mail.base_commit), ""),
        "change_id": next((mail.change_id for mail in known if mail.change_id), ""),
        "prerequisites": list(_some(name for mail in known for name in mail.prerequisites)),
    }

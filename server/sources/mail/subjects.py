"""What a subject line says: `[PATCH v3 2/8 mm-unstable] mm: Do this` and its many relatives."""

import re
from dataclasses import dataclass, field

# Longer brackets are text, not marks.
_LONGEST_MARK = 200
# So many marks and signs of an answer are read, of the beginning of a subject; what follows is text. A subject may have
# 8 KB, each mail's is read several times, and each of its words would stand on every list of series.
_MOST_MARKS = 20
_MARKS_END = 500
_MOST_TAGS = 10
# How mailers of several languages begin an answer or a forwarded mail.
_REPLY = re.compile(
    r"\s*(?:re|aw|sv|vs|antw|fwd?|wg|tr|rv|ref|enc|odp|ynt|答复|回复|转发)"
    r"(?:\[\d{1,3}\]|\(\d{1,3}\)|\^\d{1,3})?\s?[:\uff1a]",
    re.IGNORECASE,
)
# Some forget the colon, but only at the very start is it sure.
_BARE_REPLY = re.compile(r"\s*re\s", re.IGNORECASE)
_BETWEEN_WORDS = re.compile(r"[\s,:;\[\]]+")
# Numbers with more digits are no versions or counters, whatever brackets they stand in.
_VERSION = re.compile(r"(?:patch|rfc)?[-_]?v(\d{1,3})(?:\.(\d{1,2}))?", re.IGNORECASE)
_COUNTER = re.compile(r"(\d{1,4})/(\d{1,4})")
# Mercurial writes `1 of 2`; people forget blanks: `PATCH1/8`, `v2PATCH 1/4`.
_OF = re.compile(r"\b(\d{1,4})\sof\s(\d{1,4})\b", re.IGNORECASE)
_GLUED = re.compile(r"(?<=patch)(?=\d)|(?<=patch)(?=v\d)|(?<=\d)(?=patch)", re.IGNORECASE)
_TITLE_VERSION = re.compile(r"\s?\(v(\d{1,3})(?:\.(\d{1,2}))?\)$", re.IGNORECASE)
_RESENT = frozenset({"resend", "resent", "re-send", "repost"})


@dataclass(frozen=True)
class Marks:
    """`index` and `total` are None where the subject has no counter; `patch` tells whether a mark announces one.

    `minor` is what follows the point of a version such as v11.1: people number the replacement of a few patches so.
    """

    title: str
    patch: bool = False
    reply: bool = False
    rfc: bool = False
    resend: bool = False
    version: int = 1
    minor: int = 0
    index: int | None = None
    total: int | None = None
    tags: tuple[str, ...] = ()


def parse_subject(subject: str) -> Marks:
    words = _Words()
    bare = _BARE_REPLY.match(subject)
    reply, at = bool(bare), bare.end() if bare else 0
    for _ in range(_MOST_MARKS):
        if at > _MARKS_END:
            break
        if found := _REPLY.match(subject, at):
            reply, at = True, found.end()
        elif end := _end_of_mark(subject, at):
            words.take_mark(subject[at:end])
            at = end
        else:
            break
    title = " ".join(subject[at:].split())
    if at:
        title = title.removeprefix(":").lstrip()
    return words.marks(title, reply=reply)


def normalised(title: str) -> str:
    """A title as it is the same in all versions of a series."""
    return _TITLE_VERSION.sub("", " ".join(title.lower().split()))


def _number(found: re.Match[str]) -> tuple[int, int]:
    return max(int(found[1]), 1), int(found[2] or 0)


def _end_of_mark(subject: str, at: int) -> int:
    """Where the brackets that begin at `at`, after blanks, end; 0 where there are none. Brackets may hold brackets."""
    while subject[at : at + 1].isspace():
        at += 1
    if subject[at : at + 1] != "[":
        return 0
    depth = 0
    for place, character in enumerate(subject[at : at + _LONGEST_MARK + 2], start=at):
        depth += (character == "[") - (character == "]")
        if not depth:
            return place + 1
    return 0


@dataclass
class _Words:
    """What the words of all marks say."""

    patch: bool = False
    rfc: bool = False
    resend: bool = False
    version: int = 0
    minor: int = 0
    index: int | None = None
    total: int | None = None
    tags: list[str] = field(default_factory=list)

    def take_mark(self, mark: str) -> None:
        spaced = _GLUED.sub(" ", _OF.sub(r"\1/\2", mark))
        for word in filter(None, _BETWEEN_WORDS.split(spaced)):
            self._take(word)

    def _take(self, word: str) -> None:
        bare = word.lower().strip("-_")
        if counter := _COUNTER.fullmatch(word):
            self.index, self.total = int(counter[1]), int(counter[2])
        elif version := _VERSION.fullmatch(word):
            self.version, self.minor = _number(version)
            self.patch |= bare.startswith("patch")
        elif bare.startswith("patch"):
            self.patch = True
        elif bare in _RESENT:
            self.resend = True
        elif bare != "rfc" and len(self.tags) < _MOST_TAGS:
            self.tags.append(word)
        self.rfc |= bare.startswith("rfc")

    def marks(self, title: str, *, reply: bool) -> Marks:
        in_title = None if self.version else _TITLE_VERSION.search(title)
        version, minor = _number(in_title) if in_title else (max(self.version, 1), self.minor)
        return Marks(
            title=title,
            patch=self.patch or self.rfc or self.index is not None,
            reply=reply,
            rfc=self.rfc,
            resend=self.resend,
            version=version,
            minor=minor,
            index=self.index,
            total=self.total,
            tags=tuple(self.tags),
        )

"""Patches and cover letters as grouping sees them: what their subjects say, and the versions made of them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

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


# Somebody who answers each old patch with its new one has sent them all after this time.
REROLL_QUIET = timedelta(hours=1)


@dataclass(frozen=True)
class Posting:
    """A patch (index 1 and up) or cover letter (index 0). `ancestors` are Message-IDs, nearest first.

    `marked`: its subject says that it is a patch. `naked`: a mail that nothing marks as a cover letter; it counts only
    where patches make it one. `received_at`: when its archive took it, if that is known. `doubted`: others of its
    sender are proved, and it is not: it may be anybody's.
    """

    key: int
    message_id: str
    ancestors: tuple[str, ...]
    sender: str
    sent_at: datetime
    version: int
    index: int
    total: int
    numbered: bool = True
    marked: bool = True
    naked: bool = False
    minor: int = 0
    received_at: datetime | None = None
    doubted: bool = False

    @property
    def hand(self) -> tuple[str, bool]:
        """Who made it, for all that is known: only mails of one hand join without naming each other."""
        return self.sender, self.doubted

    @property
    def arrival(self) -> tuple[datetime, datetime, int, str, int]:
        """In this order mails take places. When it was sent says whoever wrote it; when it came, its archive."""
        return self.received_at or self.sent_at, self.sent_at, self.index, self.message_id, self.key

    @property
    def number(self) -> tuple[int, int]:
        """Its version as the marks say it, v11.1 as (11, 1)."""
        return self.version, self.minor


@dataclass(frozen=True)
class Version:
    """`total` is what the marks say; who forgot a patch sends `[PATCH 3/2]` after them, so there may be more.

    `patches` by index; `carried` are those of them that an older version posted and this one leaves as they are.

    `replaced` are the patches of that older version whose places this one takes, and `rerolls` the keys by which it is
    known: of its cover letter and its first own patch. All three are empty for a whole posting.
    """

    version: int
    total: int
    cover: Posting | None
    patches: tuple[Posting, ...]
    carried: tuple[Posting, ...] = ()
    replaced: tuple[Posting, ...] = ()
    minor: int = 0
    rerolls: tuple[int, ...] = ()
    awaits: bool = False

    @property
    def number(self) -> tuple[int, int]:
        return self.version, self.minor

    @property
    def own(self) -> tuple[Posting, ...]:
        """The patches that were posted for this version."""
        if not self.carried:
            return self.patches
        carried = {p.key for p in self.carried}
        return tuple(p for p in self.patches if p.key not in carried)

    @property
    def root(self) -> Posting:
        return self.cover or self.own[0]

    @property
    def complete(self) -> bool:
        return sum(p.index <= self.total for p in self.patches) == self.total

    @property
    def postings(self) -> tuple[Posting, ...]:
        """The mails that were posted for this version: each mail of a thread is among those of one version only."""
        return (self.cover, *self.own) if self.cover else self.own

    @property
    def settles_at(self) -> datetime | None:
        """Before this time its author's own patches may still be on their way; None where that is no question.

        It is one for a version that carries patches over, and for one that holds somebody else's: these take places
        that nobody else fills, and whoever answers a series fast must not keep its patches out. It is one, too, for a
        patch without a number that was sent with a series where places are free (`awaits`).
        """
        foreign = any(p.sender != self.root.sender for p in self.own)
        open_end = self.carried or foreign or self.awaits
        return max(p.sent_at for p in self.own) + REROLL_QUIET if open_end else None


def posting_of(
    *,
    key: int,
    message_id: str,
    in_reply_to: str,
    references: Sequence[str],
    sender: str,
    sent_at: datetime,
    marks: Marks,
    naked: bool = False,
    received_at: datetime | None = None,
    doubted: bool = False,
) -> Posting:
    """What a mail says, as grouping needs it. `sender` is an address, `key` any number that is the mail's own."""
    numbered = marks.index is not None and bool(marks.total) and not naked
    parents = [in_reply_to] if in_reply_to else []
    return Posting(
        key=key,
        message_id=message_id,
        ancestors=tuple(a for a in dict.fromkeys([*parents, *reversed(references)]) if a != message_id),
        sender=sender.lower(),
        sent_at=sent_at,
        version=marks.version,
        minor=marks.minor,
        index=0 if naked else (marks.index or 0) if numbered else 1,
        total=(marks.total or 1) if numbered else 1,
        numbered=numbered,
        marked=marks.patch,
        naked=naked,
        received_at=received_at,
        doubted=doubted,
    )

"""Patches and cover letters as grouping sees them, and the versions that it makes of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from server.sources.mail.subjects import Marks

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

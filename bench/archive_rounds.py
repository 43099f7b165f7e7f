"""What the keepers of the archive do between two visits of a watcher: the mails, and what happens to them."""

import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from bench.archive_inbox import Inbox
from bench.mailboxes import Thread

# Which part of the mails each round brings.
SHARES = (0.35, 0.2, 0.15, 0.1, 0.1, 0.1)
# So many threads go on at the same time, so that series and their versions arrive in parts.
_AT_ONCE = 60
# One mail of so many is kept in mind, to be deleted, purged or edited later.
_KEPT = 25
_ID = re.compile(rb"(?im)^message-id:\s*<[^<>\s]+>")


def interleaved(threads: Iterable[Thread], chance: random.Random) -> Iterator[bytes]:
    """The mails of many threads at a time, each thread in its order."""
    waiting = iter(threads)
    running = [iter(thread) for thread in islice(waiting, _AT_ONCE)]
    while running:
        place = chance.randrange(len(running))
        mail = next(running[place], None)
        if mail is not None:
            yield mail
            continue
        following = next(waiting, None)
        if following is None:
            running.pop(place)
        else:
            running[place] = iter(following)


@dataclass
class Keepers:
    """Let the archive grow and change, round by round."""

    inbox: Inbox
    mails: Sequence[bytes]
    chance: random.Random
    kept: list[bytes] = field(default_factory=list)
    removed: list[bytes] = field(default_factory=list)
    given: int = 0

    def act(self, number: int) -> int:
        """What happens before round `number`; returns how many mails the archive took."""
        if number == 1:
            self._remove(20)
        elif number == 2:  # noqa: PLR2004 (the third round)
            self._purge(3)
        elif number == 3:  # noqa: PLR2004 (the fourth)
            self._edit(3)
            self._remove(10)
        taken = self._grow(SHARES[number])
        if number == len(SHARES) - 2:
            self.inbox.purge(self._newest())
        elif number == len(SHARES) - 1:
            # No spam after all; and the newest mail is edited.
            taken += self.inbox.add(self.removed[:3])
            self.inbox.edit(self._newest())
        return taken

    def _newest(self) -> bytes:
        """What a history ends with is the hardest to tell from one that was cut off."""
        return next(mail for mail in reversed(self.mails[: self.given]) if _ID.search(mail))

    def _grow(self, share: float) -> int:
        last = len(self.mails) if self.given + share * len(self.mails) > 0.999 * len(self.mails) else None
        end = last or self.given + int(share * len(self.mails))
        some = self.mails[self.given : end]
        self.given = end
        self.kept += [mail for mail in some[: -len(some) // 10 or None : _KEPT] if _ID.search(mail)]
        return self.inbox.add(some)

    def _take(self, count: int) -> list[bytes]:
        self.chance.shuffle(self.kept)
        taken, self.kept = self.kept[:count], self.kept[count:]
        return taken

    def _remove(self, count: int) -> None:
        for mail in self._take(count):
            self.inbox.remove(mail)
            self.removed.append(mail)

    def _purge(self, count: int) -> None:
        for mail in self._take(count):
            self.inbox.purge(mail)

    def _edit(self, count: int) -> None:
        for mail in self._take(count):
            self.inbox.edit(mail)

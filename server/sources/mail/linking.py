"""Joining postings to versions, link by link from the surest to the weakest, in time that hardly exceeds their number.

A link that would put two mails on one place of a version is not made, so what is left over becomes one of its own.
"""

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta

from server.sources.mail.postings import Posting
from server.sources.mail.rerolls import First

SENT_TOGETHER = timedelta(minutes=10)
# Groups that a posting is tried with before it begins one of its own; people repost a series a few times at most.
_TRIES = 16


@dataclass(eq=False)
class Group:
    """The postings of one version by their places: 0 is the cover letter.

    `awaits`: others that were sent with it may still come and show that it is a part of something larger.
    """

    places: dict[int, Posting] = field(default_factory=dict)
    awaits: bool = False


class Groups:
    """All groups of a thread; at first each posting is its own."""

    def __init__(self, postings: Iterable[Posting]) -> None:
        self.of = {p.key: Group({p.index: p}) for p in postings}

    def join(self, one: Posting, other: Posting) -> bool:
        """Make one group of those of `one` and `other`; no where both fill the same place."""
        small, large = sorted((self.of[one.key], self.of[other.key]), key=lambda g: len(g.places))
        if small is large:
            return True
        if any(place in large.places for place in small.places):
            return False
        large.places.update(small.places)
        for posting in small.places.values():
            self.of[posting.key] = large
        return True

    def all(self) -> list[Group]:
        return list({id(g): g for g in self.of.values()}.values())


class _Shelf:
    """Groups that a posting may belong to equally well: the first one with room takes it."""

    def __init__(self, groups: Groups) -> None:
        self.groups = groups
        self.members: list[Posting] = []
        # Per place: all groups before this one have it filled. They never lose it.
        self.filled: dict[int, int] = {}

    def put(self, posting: Posting) -> None:
        start = self.filled.get(posting.index, 0)
        own = self.groups.of[posting.key]
        while start < len(self.members):
            group = self.groups.of[self.members[start].key]
            if group is own or posting.index not in group.places:
                break
            start += 1
        self.filled[posting.index] = start
        for member in self.members[start : start + _TRIES]:
            if self.groups.join(posting, member):
                return
        self.members.append(posting)


def link(postings: list[Posting], threads: dict[str, str]) -> Groups:
    """Group numbered `postings`, which stand in the order in which they came. `threads` as of threads_of.

    Of two for one place the first has it.
    """
    groups = Groups(postings)
    direct = list(_direct(postings))
    for child, parent in direct:
        if child.hand == parent.hand:
            groups.join(child, parent)
    _shelve(groups, ((_bucket(p, p.ancestors[0]), p) for p in postings if p.ancestors))
    # A cover letter in the thread of an older version is an ancestor of its patches, or it is not theirs.
    _shelve(groups, ((_bucket(p, threads[p.message_id]), p) for p in postings if p.index > 0))
    _join_by_time(groups, postings)
    # Somebody else's patch counts only where the poster's own is missing.
    rerolls, bare = _closed(groups, postings)
    for child, parent in direct:
        # Others fill places that were announced; they neither add to what is whole nor complete a partial re-roll. A
        # letter that may still be the author's own is left to the check of its sender.
        announced = max(child.index, parent.index) <= child.total
        touched = {id(groups.of[child.key]), id(groups.of[parent.key])}
        closed = rerolls if child.sender == parent.sender else bare
        if child.hand == parent.hand or (announced and touched.isdisjoint(closed)):
            groups.join(child, parent)
    return groups


def _closed(groups: Groups, postings: list[Posting]) -> tuple[set[int], set[int]]:
    """Groups without a letter that need nobody else, by id: partial re-rolls, then these and what has all patches."""
    first = First(postings)
    bare = [group for group in groups.all() if 0 not in group.places]
    rerolls = {id(g) for g in bare if all(first.answered(patch) for patch in g.places.values())}
    whole = {id(g) for g in bare if sum(p.index <= p.total for p in g.places.values()) == _total(g)}
    return rerolls, rerolls | whole


def _total(group: Group) -> int:
    return next(iter(group.places.values())).total


def _bucket(posting: Posting, place: str) -> Hashable:
    return posting.hand, posting.number, posting.total, place


def _shelve(groups: Groups, keyed: Iterable[tuple[Hashable, Posting]]) -> None:
    shelves: dict[Hashable, _Shelf] = {}
    for key, posting in keyed:
        shelves.setdefault(key, _Shelf(groups)).put(posting)


def _direct(postings: list[Posting]) -> Iterator[tuple[Posting, Posting]]:
    """Each patch with the nearest ancestor of the same version that has another place in it.

    Of several mails with one Message-ID it is the one by the same hand: anyone can give his mail another's.
    """
    known: dict[Hashable, Posting] = {}
    for p in reversed(postings):
        known[p.message_id, p.number, p.total] = known[p.message_id, p.number, p.total, p.hand] = p
    for posting in postings:
        if posting.index == 0:
            continue
        for ancestor in posting.ancestors:
            name = (ancestor, posting.number, posting.total)
            parent = known.get((*name, posting.hand)) or known.get(name)
            if parent and parent.index != posting.index:
                yield posting, parent
                break


def threads_of(postings: list[Posting]) -> dict[str, str]:
    """For the Message-ID of each posting an id that all mails of its thread share."""
    threads = Threads()
    for posting in postings:
        for ancestor in posting.ancestors:
            threads.join(posting.message_id, ancestor)
    return {p.message_id: threads.of(p.message_id) for p in postings}


class Threads:
    """Message-IDs that name each other, whatever the order in which that is learnt (union-find)."""

    def __init__(self) -> None:
        self.above: dict[str, str] = {}

    def of(self, message_id: str) -> str:
        root = message_id
        while (above := self.above.get(root, root)) != root:
            # Halving the way as it is walked keeps all ways short, cycles of references included.
            self.above[root] = self.above.get(above, above)
            root = above
        return root

    def join(self, one: str, other: str) -> None:
        mine, theirs = sorted((self.of(one), self.of(other)))
        self.above[theirs] = mine


def _join_by_time(groups: Groups, postings: list[Posting]) -> None:
    """Mails that were sent without threading; one that is threaded says by that where it belongs."""
    parents = {a for p in postings for a in p.ancestors}
    newest: dict[Hashable, list[Posting]] = {}
    for posting in postings:
        if posting.ancestors or posting.message_id in parents:
            continue
        members = newest.setdefault(_bucket(posting, ""), [])
        for number in range(len(members) - 1, max(-1, len(members) - 1 - _TRIES), -1):
            near = abs(posting.sent_at - members[number].sent_at) <= SENT_TOGETHER
            if near and groups.join(posting, members[number]):
                members.append(posting)
                del members[number]
                break
        else:
            members.append(posting)

"""Which mails are one version of one posting. Pure: the answer does not depend on the order of arrival."""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from server.sources.mail.postings import Posting, Version

# Joining postings to versions, link by link from the surest to the weakest, in time that hardly exceeds their number.
#
# A link that would put two mails on one place of a version is not made, so what is left over becomes one of its own.

SENT_TOGETHER = timedelta(minutes=10)
# Groups that a posting is tried with before it begins one of its own; people repost a series a few times at most.
_TRIES = 16


@dataclass(eq=False)
class VersionGroup:
    """The postings of one version by their places: 0 is the cover letter.

    `awaits`: others that were sent with it may still come and show that it is a part of something larger.
    """

    places: dict[int, Posting] = field(default_factory=dict)
    awaits: bool = False


class Groups:
    """All groups of a thread; at first each posting is its own."""

    def __init__(self, postings: Iterable[Posting]) -> None:
        self.of = {p.key: VersionGroup({p.index: p}) for p in postings}

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

    def all(self) -> list[VersionGroup]:
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


def _total(group: VersionGroup) -> int:
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
    threads = JoinedIds()
    for posting in postings:
        for ancestor in posting.ancestors:
            threads.join(posting.message_id, ancestor)
    return {p.message_id: threads.of(p.message_id) for p in postings}


class JoinedIds:
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


# So many versions with one Message-ID are no more sure than any larger number.
_AMBIGUOUS = 8
_UNMARKED = (1, 0)


def with_parents_version(postings: list[Posting]) -> list[Posting]:
    """Some mark the version on the first mail only: what follows it directly, by the same hand, is of that version."""
    # Numbers grow from parent to child, so a parent's version is known before it is asked for.
    marked: dict[tuple[str, str, int], dict[tuple[int, int], int]] = {}
    known: dict[int, Posting] = {}
    for posting in sorted(postings, key=lambda p: p.index):
        parent = (next(iter(posting.ancestors), ""), posting.sender, posting.total)
        above = [number for number, index in marked.get(parent, {}).items() if index < posting.index]
        # Mails of two versions can have one Message-ID: then the mark alone decides.
        takes_it = posting.numbered and posting.number == _UNMARKED and len(above) == 1
        known[posting.key] = replace(posting, version=above[0][0], minor=above[0][1]) if takes_it else posting
        if posting.numbered:
            mine = marked.setdefault((posting.message_id, posting.sender, posting.total), {})
            if len(mine) < _AMBIGUOUS:
                mine.setdefault(known[posting.key].number, posting.index)
    return [known[p.key] for p in postings]


def with_unmarked_covers(groups: list[VersionGroup], naked: Iterable[Posting]) -> list[VersionGroup]:
    """Give groups without a cover letter the mail that is one by its place; a group that was only this mail goes away.

    It is a mail that a patch answers directly, by the same sender: one marked as the cover letter of a version that has
    no patches, or one that nothing marks. It belongs to the first group that has such a patch.
    """
    # Somebody else's mail with the same Message-ID must not hide the author's.
    alone = {_name(g.places[0]): g for g in reversed(groups) if g.places.keys() == {0}}
    unmarked = {_name(p): p for p in naked}
    gone: set[int] = set()
    for group in groups:
        if 0 in group.places:
            continue
        for patch in [group.places[i] for i in sorted(group.places)]:
            parent = (next(iter(patch.ancestors), ""), patch.sender)
            cover = alone[parent].places[0] if parent in alone else unmarked.get(parent)
            if cover is None or not _fits(cover, patch):
                continue
            group.places[0] = cover
            unmarked.pop(parent, None)
            if parent in alone:
                gone.add(id(alone.pop(parent)))
            break
    return [g for g in groups if id(g) not in gone]


def _name(cover: Posting) -> tuple[str, str]:
    return cover.message_id, cover.sender


def _fits(cover: Posting, patch: Posting) -> bool:
    """A patch without a number does not take the cover letter of a series that is still to come."""
    return cover.naked or patch.numbered or cover.total == patch.total


_Batch = tuple[str, tuple[str, bool], tuple[int, int]]


def with_unnumbered_patches(groups: list[VersionGroup], threads: dict[str, str]) -> list[VersionGroup]:
    """Put patches without a number on the free places of the series that was sent with them, in the order of sending.

    Only where there is no doubt: the same thread, sender and version, within minutes, one such series, and exactly as
    many patches as places; where there are fewer, the others may be on their way. `threads` tells for each Message-ID
    what its thread is called.
    """
    loose: dict[_Batch, list[VersionGroup]] = {}
    series: dict[_Batch, list[VersionGroup]] = {}
    for group in groups:
        first = next(iter(group.places.values()))
        batch = (threads[first.message_id], first.hand, first.number)
        if first.numbered:
            series.setdefault(batch, []).append(group)
        elif first.marked:
            loose.setdefault(batch, []).append(group)
    gone: set[int] = set()
    for batch, found in loose.items():
        if len(series.get(batch, ())) == 1:
            gone |= _filled(series[batch][0], found)
    return [g for g in groups if id(g) not in gone]


def _filled(group: VersionGroup, loose: list[VersionGroup]) -> set[int]:
    there = list(group.places.values())
    free = [index for index in range(1, there[0].total + 1) if index not in group.places]
    start, end = min(p.sent_at for p in there), max(p.sent_at for p in there)
    near = [g for g in loose if start - SENT_TOGETHER <= g.places[1].sent_at <= end + SENT_TOGETHER]
    if not free or len(near) != len(free):
        for single in near:
            # As they come one by one, the first must not be taken for a whole series of one patch.
            single.awaits = len(near) < len(free)
        return set()
    for index, patch in zip(free, sorted((g.places[1] for g in near), key=_order), strict=True):
        group.places[index] = replace(patch, index=index, total=there[0].total)
    return {id(g) for g in near}


def _order(posting: Posting) -> tuple[object, int, str]:
    # Mails of one second: git numbers its Message-IDs, and 10 comes after 9.
    return posting.sent_at, len(posting.message_id), posting.message_id


# Of each mail of a thread so many copies are made at most: who answers one patch of a thousand a thousand times would
# else make a million.
_COPIES = 20


class First:
    """Of the mails with one Message-ID the one that came first, and the first of each sender: others can copy it."""

    def __init__(self, postings: Iterable[Posting]) -> None:
        self._of: dict[str | tuple[str, str], Posting] = {}
        for posting in sorted(postings, key=lambda p: p.arrival):
            self._of.setdefault(posting.message_id, posting)
            self._of.setdefault((posting.message_id, posting.sender), posting)

    def answered(self, patch: Posting) -> Posting | None:
        """The patch that `patch` replaces, if it answers one of its own number most nearly."""
        known = (self._of.get((a, patch.sender)) or self._of.get(a) for a in patch.ancestors)
        nearest = next((p for p in known if p), None)
        if not nearest or nearest.number > patch.number:
            return None
        same = (nearest.index, nearest.total, nearest.sender) == (patch.index, patch.total, patch.sender)
        return nearest if same else None


def with_carried_patches(versions: list[Version]) -> tuple[Version, ...]:
    """Fill up the partial re-rolls in `versions`, which stand in the order in which they were sent.

    The rule: an incomplete version without a cover letter is a re-roll when each of its patches, of all patches and
    covers that it answers, answers most nearly the one with its own number and total, by the same sender, and these all
    are of one version, not newer by its mark. Its other patches are carried over; it may be a re-roll itself.

    So `[PATCH v2 3/5]` in answer to v1 3/5 is one, and a second `[PATCH 3/5]` in answer to the first: a new posting of
    the same version number. A patch that answers another number is none: the rest of its version may be missing.
    """
    first = First(p for v in versions for p in v.postings)
    holder: dict[int, int] = {p.key: number for number, v in enumerate(versions) for p in v.postings}
    found = list(versions)
    left = _COPIES * len(holder)
    for number, version in enumerate(versions):
        old = _rerolled(version, first, holder)
        # Only what was sent before: so no version can be built on itself.
        if old is not None and old < number and left >= len(found[old].patches):
            found[number] = _filled_up(version, found[old])
            left -= len(found[number].carried)
    return tuple(found)


def _rerolled(version: Version, first: First, holder: dict[int, int]) -> int | None:
    """The number of the version that `version` is a partial re-roll of."""
    if version.complete or version.cover:
        return None
    answered = [first.answered(patch) for patch in version.patches]
    older = {holder[p.key] for p in answered if p}
    return older.pop() if all(answered) and len(older) == 1 else None


def _filled_up(version: Version, old: Version) -> Version:
    own = {p.index for p in version.patches}
    carried = tuple(p for p in old.patches if p.index not in own)
    patches = tuple(sorted([*version.patches, *carried], key=lambda p: p.index))
    replaced = tuple(p for p in old.patches if p.index in own)
    first = (*([old.cover] if old.cover else []), *old.own[:1])
    return replace(
        version, patches=patches, carried=carried, replaced=replaced, rerolls=tuple(posting.key for posting in first)
    )


# Mailers and archives keep far fewer References; longer ways are made to cost time.
_HIGHEST = 100


def versions_of(postings: Iterable[Posting], parents: Mapping[str, str] | None = None) -> tuple[Version, ...]:
    """Group the `postings` of a thread, or of several. `parents` may tell what each mail answers, discussion included.

    Each is among the `postings` of exactly one version, but for naked cover letters that no patch answers: these are in
    none. Versions come in the order in which they were sent. Takes time in proportion to the number of postings and of
    their ancestors.
    """
    ordered = [_with_ancestors(p, parents) if parents else p for p in sorted(postings, key=_when)]
    marked = with_parents_version([p for p in ordered if not p.naked])
    threads = threads_of(ordered)
    arrived = sorted((p for p in marked if p.numbered), key=lambda p: p.arrival)
    groups = link(arrived, threads).all()
    groups += [VersionGroup({p.index: p}) for p in marked if not p.numbered]
    groups.sort(key=lambda g: min(_when(p) for p in g.places.values()))
    groups = with_unnumbered_patches(groups, threads)
    groups = with_unmarked_covers(groups, [p for p in reversed(ordered) if p.naked])
    versions = [_version(g) for g in groups]
    return with_carried_patches(sorted(versions, key=lambda v: min(map(_when, v.postings))))


def _with_ancestors(posting: Posting, parents: Mapping[str, str]) -> Posting:
    """`posting` with the ancestors that its References left out: some mailers write only the nearest."""
    known = dict.fromkeys(posting.ancestors)
    above = next(iter(posting.ancestors), "")
    for _ in range(_HIGHEST):
        above = parents.get(above, "")
        if not above or above in known or above == posting.message_id:
            break
        known[above] = None
    return replace(posting, ancestors=tuple(known)) if len(known) > len(posting.ancestors) else posting


def _when(posting: Posting) -> tuple[datetime, int, str, int]:
    return posting.sent_at, posting.index, posting.message_id, posting.key


def _version(group: VersionGroup) -> Version:
    patches = tuple(group.places[i] for i in sorted(group.places) if i > 0)
    cover = group.places.get(0)
    first = patches[0] if patches else group.places[0]
    return Version(first.version, first.total, cover, patches, minor=first.minor, awaits=group.awaits)

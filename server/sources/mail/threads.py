"""Which mails are one version of one posting. Pure: the answer does not depend on the order of arrival.

Links are tried from the surest to the weakest: a parent of the same version, then the same thread and sender, then, for
mails that were sent without threading, the same sender and marks within minutes. A link that would put two mails on one
place is not made, so what is left over becomes a version of its own.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import combinations

SENT_TOGETHER = timedelta(minutes=10)


@dataclass(frozen=True)
class Posting:
    """A patch (index 1 and up) or cover letter (index 0). `ancestors` are Message-IDs, nearest first."""

    key: int
    message_id: str
    ancestors: tuple[str, ...]
    sender: str
    sent_at: datetime
    version: int
    index: int
    total: int
    numbered: bool = True


@dataclass(frozen=True)
class Version:
    version: int
    total: int
    cover: Posting | None
    patches: tuple[Posting, ...]

    @property
    def root(self) -> Posting:
        return self.cover or self.patches[0]

    @property
    def complete(self) -> bool:
        return len(self.patches) == self.total

    @property
    def postings(self) -> tuple[Posting, ...]:
        return (self.cover, *self.patches) if self.cover else self.patches


@dataclass(eq=False)
class _Group:
    places: dict[int, Posting] = field(default_factory=dict)

    def takes(self, other: "_Group") -> bool:
        return self is not other and not self.places.keys() & other.places.keys()


def versions_of(postings: Iterable[Posting]) -> tuple[Version, ...]:
    """Group `postings`; each is in exactly one version, versions come in the order in which they were sent."""
    ordered = _with_covers_version(sorted(postings, key=lambda p: (p.sent_at, p.index, p.message_id, p.key)))
    groups = {p.key: _Group({p.index: p}) for p in ordered}
    numbered = [p for p in ordered if p.numbered]
    for child, parent in _links(numbered):
        _join(groups, child, parent)
    found = {id(g): g for g in groups.values()}.values()
    return tuple(_version(g) for g in sorted(found, key=lambda g: min(p.sent_at for p in g.places.values())))


def _with_covers_version(postings: list[Posting]) -> list[Posting]:
    """Some mark the version on the cover letter only: its direct answers by the same hand are of that version."""
    covers: dict[tuple[str, str, int], set[int]] = {}
    for cover in postings:
        if cover.numbered and cover.index == 0:
            covers.setdefault((cover.message_id, cover.sender, cover.total), set()).add(cover.version)
    found = []
    for posting in postings:
        versions = covers.get((next(iter(posting.ancestors), ""), posting.sender, posting.total), set())
        unmarked = posting.numbered and posting.index > 0 and posting.version == 1
        # Cover letters of two versions can have one Message-ID: then the mark alone decides.
        takes_it = unmarked and len(versions) == 1
        found.append(replace(posting, version=next(iter(versions))) if takes_it else posting)
    return found


def _join(groups: dict[int, _Group], one: Posting, other: Posting) -> None:
    kept, gone = groups[other.key], groups[one.key]
    if not kept.takes(gone):
        return
    kept.places.update(gone.places)
    for posting in gone.places.values():
        groups[posting.key] = kept


def _links(postings: list[Posting]) -> Iterator[tuple[Posting, Posting]]:
    """Pairs to join, surest first."""
    parents = {(p.message_id, p.version, p.total): p for p in reversed(postings)}
    direct = [(p, parent) for p in postings if p.index > 0 and (parent := _parent(p, parents))]
    yield from (pair for pair in direct if pair[0].sender == pair[1].sender)
    buckets: dict[tuple[str, int, int], list[Posting]] = {}
    for posting in postings:
        buckets.setdefault((posting.sender, posting.version, posting.total), []).append(posting)
    for bucket in buckets.values():
        yield from ((b, a) for a, b in combinations(bucket, 2) if _same_parent(a, b))
    for bucket in buckets.values():
        yield from ((b, a) for a, b in combinations(bucket, 2) if _same_thread(a, b))
    parents_of_some = {a for p in postings for a in p.ancestors}
    for bucket in buckets.values():
        # A mail that is threaded says by that where it belongs; time must not put it elsewhere.
        alone = [p for p in bucket if not p.ancestors and p.message_id not in parents_of_some]
        yield from ((b, a) for a, b in combinations(alone, 2) if abs(a.sent_at - b.sent_at) <= SENT_TOGETHER)
    # Somebody else's patch counts only where the poster's own is missing.
    yield from direct


def _parent(posting: Posting, parents: dict[tuple[str, int, int], Posting]) -> Posting | None:
    """The nearest ancestor of the same version, a cover letter before a patch."""
    known = [p for a in posting.ancestors if (p := parents.get((a, posting.version, posting.total)))]
    return next((p for p in known if p.index == 0), next(iter(known), None))


def _same_parent(a: Posting, b: Posting) -> bool:
    return bool(a.ancestors and b.ancestors) and a.ancestors[0] == b.ancestors[0]


def _same_thread(a: Posting, b: Posting) -> bool:
    """A cover letter in the thread of an older version is an ancestor of its patches, or it is not theirs."""
    if a.index == 0 or b.index == 0:
        return False
    mine, theirs = {a.message_id, *a.ancestors}, {b.message_id, *b.ancestors}
    return bool(mine & theirs)


def _version(group: _Group) -> Version:
    patches = tuple(group.places[i] for i in sorted(group.places) if i > 0)
    first = next(iter(group.places.values()))
    return Version(first.version, first.total, group.places.get(0), patches)

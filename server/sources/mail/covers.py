"""Cover letters whose marks say less than their place in the thread does, and patches marked less than their cover."""

from collections.abc import Iterable
from dataclasses import replace

from server.sources.mail.linking import Group
from server.sources.mail.postings import Posting

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


def with_unmarked_covers(groups: list[Group], naked: Iterable[Posting]) -> list[Group]:
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

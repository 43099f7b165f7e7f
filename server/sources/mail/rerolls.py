"""Partial re-rolls: a new version of a few patches, in answer to the old ones, that leaves the others as they are."""

from collections.abc import Iterable
from dataclasses import replace

from server.sources.mail.postings import Posting, Version

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
            found[number] = _filled(version, found[old])
            left -= len(found[number].carried)
    return tuple(found)


def _rerolled(version: Version, first: First, holder: dict[int, int]) -> int | None:
    """The number of the version that `version` is a partial re-roll of."""
    if version.complete or version.cover:
        return None
    answered = [first.answered(patch) for patch in version.patches]
    older = {holder[p.key] for p in answered if p}
    return older.pop() if all(answered) and len(older) == 1 else None


def _filled(version: Version, old: Version) -> Version:
    own = {p.index for p in version.patches}
    carried = tuple(p for p in old.patches if p.index not in own)
    patches = tuple(sorted([*version.patches, *carried], key=lambda p: p.index))
    replaced = tuple(p for p in old.patches if p.index in own)
    first = (*([old.cover] if old.cover else []), *old.own[:1])
    return replace(
        version, patches=patches, carried=carried, replaced=replaced, rerolls=tuple(posting.key for posting in first)
    )

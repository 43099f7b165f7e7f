"""Which mails are one version of one posting. Pure: the answer does not depend on the order of arrival."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from server.sources.mail.covers import with_parents_version, with_unmarked_covers
from server.sources.mail.linking import SENT_TOGETHER, Group, link, threads_of
from server.sources.mail.postings import REROLL_QUIET, Posting, Version, posting_of
from server.sources.mail.rerolls import with_carried_patches
from server.sources.mail.unnumbered import with_unnumbered_patches

__all__ = ["REROLL_QUIET", "SENT_TOGETHER", "Posting", "Version", "posting_of", "versions_of"]

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
    groups += [Group({p.index: p}) for p in marked if not p.numbered]
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


def _version(group: Group) -> Version:
    patches = tuple(group.places[i] for i in sorted(group.places) if i > 0)
    cover = group.places.get(0)
    first = patches[0] if patches else group.places[0]
    return Version(first.version, first.total, cover, patches, minor=first.minor, awaits=group.awaits)

"""Patches of a numbered series that lost their numbers: `[PATCH]` between `[PATCH 0/3]` and `[PATCH 1/3]`."""

from dataclasses import replace

from server.sources.mail.linking import SENT_TOGETHER, Group
from server.sources.mail.postings import Posting

_Batch = tuple[str, tuple[str, bool], tuple[int, int]]


def with_unnumbered_patches(groups: list[Group], threads: dict[str, str]) -> list[Group]:
    """Put patches without a number on the free places of the series that was sent with them, in the order of sending.

    Only where there is no doubt: the same thread, sender and version, within minutes, one such series, and exactly as
    many patches as places; where there are fewer, the others may be on their way. `threads` tells for each Message-ID
    what its thread is called.
    """
    loose: dict[_Batch, list[Group]] = {}
    series: dict[_Batch, list[Group]] = {}
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


def _filled(group: Group, loose: list[Group]) -> set[int]:
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

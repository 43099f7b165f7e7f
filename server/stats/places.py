"""Places in history where timelines of a fleet were nominated, and which nominations may be one change."""

from collections.abc import Iterable
from dataclasses import dataclass

# Steps this many revisions apart may be one change: small changes are placed with an error of a few revisions.
CLOSE = 4


@dataclass(frozen=True)
class Nomination:
    """A step of one timeline before anything is decided.

    It happened after the last revision that was measured before it: from `since` to `revision`.
    """

    timeline: int
    revision: int
    since: int
    score: float

    def near(self, other: "Nomination") -> bool:
        return max(other.since - self.revision, self.since - other.revision) <= CLOSE


def strongest_first(nominations: Iterable[Nomination]) -> list[Nomination]:
    return sorted(nominations, key=lambda n: (-n.score, n.revision, n.timeline))


def cluster(head: Nomination, nominations: Iterable[Nomination]) -> list[Nomination]:
    """The head and what may be the same change, of each timeline the first; the head comes first."""
    members = {head.timeline: head}
    for nomination in nominations:
        if nomination.near(head):
            members.setdefault(nomination.timeline, nomination)
    return list(members.values())


def first_guess(members: list[Nomination]) -> int:
    """Where to look first: at the head, unless that machine did not measure for a while and another one did."""
    head = members[0]
    inside = [n.revision for n in members if head.since <= n.revision < head.revision]
    return inside[0] if inside else head.revision

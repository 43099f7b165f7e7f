"""Commits that say themselves which commit they mend: `Fixes:` trailers and reverts."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from server.core.git import GitError, Repository

# As many characters of a commit id as kernel people write; fewer name several commits.
_SHORTEST = 12
_NAMED = re.compile(r"^[ \t]*Fixes:[ \t]*([0-9a-f]{12,40})\b|This reverts commit ([0-9a-f]{12,40})\b", re.MULTILINE)
# One look reads so many commits that match, among the new ones of a branch; the time limit ends what is endless.
_MOST_FOUND = 200
_SECONDS = 60.0


@dataclass(frozen=True)
class Mending:
    """A commit that says it mends `culprit`, and the first-parent commit with which it came into the branch."""

    culprit: str
    sha: str
    landed: str


def mendings(mirror: Repository, culprits: Collection[str], *, since: str, head: str) -> list[Mending]:
    """What came between the two commits and mends one of the culprits, the oldest first.

    The whole history is read, not only first parents: mending commits come in by merges. GitError where it cannot be.
    """
    if not culprits or since == head:
        return []
    short = "|".join(sorted({sha[:_SHORTEST] for sha in culprits}))
    pattern = f"(Fixes:[ \t]*|This reverts commit )({short})"
    some = ("-z", "--reverse", f"-n{_MOST_FOUND}", "--format=%H%n%B", "-E", f"--grep={pattern}")
    told = mirror.output("log", *some, f"{since}..{head}", "--", timeout=_SECONDS).decode(errors="replace")
    pieces = (entry.partition("\n") for entry in told.split("\0") if entry)
    return [
        Mending(culprit, sha.strip(), _landed(mirror, sha.strip(), since=since, head=head))
        for sha, _, body in pieces
        for culprit in _named(body, culprits)
    ]


def _named(body: str, culprits: Collection[str]) -> Iterator[str]:
    told = {fixes or reverts for fixes, reverts in _NAMED.findall(body)}
    return (culprit for culprit in sorted(culprits) if any(culprit.startswith(name) for name in told))


def _landed(mirror: Repository, sha: str, *, since: str, head: str) -> str:
    """The oldest first-parent commit of the branch that holds `sha`."""
    told = mirror.output("rev-list", "--first-parent", "--reverse", f"{since}..{head}", "--", timeout=_SECONDS)
    line = told.decode().split()
    if sha in line:
        return sha
    low, high = 0, len(line) - 1
    if not line:
        raise GitError("git-failed", f"nothing lies between {since[:_SHORTEST]} and {head[:_SHORTEST]}")
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if mirror.is_ancestor(sha, line[middle]) else (middle + 1, high)
    return line[low]

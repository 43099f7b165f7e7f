"""Which commits a series may be applied to, best first, and what tells so: never a guess without a word."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from server.core.errors import DomainError
from server.sources.applying.screening import ScreenedMail
from server.sources.bases.announced import announced_base
from server.sources.bases.blobs import PreImages, content_at, pre_images
from server.sources.bases.blobs_history import Match, merged_match, newest_match
from server.sources.bases.places import Clues, Place, Rank, forced_out_places, of_rank, places_for, unwatched_version
from server.sources.mirror import mirror
from server.sources.models import Series, Tree

# Looking through one branch, and through everything that was merged: seconds for a kernel without a commit-graph.
_BRANCH_SECONDS = 15.0
_MERGED_SECONDS = 30.0
# All branches together; applying needs its time as well.
_ALL_SECONDS = 60.0
# Heads of one rank that are tried; a watched tree has rarely more branches that live.
_MOST_HEADS = 12
_MOST_NAMED = 3


@dataclass(frozen=True)
class Base:
    """A commit to try. `how` is one sentence on what told it; `certain` only where the mails name it."""

    sha: str
    tree: Tree
    how: str
    certain: bool


def candidate_bases(series: Series, mails: Sequence[ScreenedMail], clues: Clues) -> Iterator[Base]:
    """Commits to try in this order: base-commit, then what holds all blobs of the index lines, then guesses.

    Later ones are looked for only when they are asked for. DomainError `tree-not-fetched`, temporary, while no tree
    that could be meant has a head.
    """
    places = places_for(clues)
    announced = announced_base(series.base_commit, places) if series.base_commit else None
    if announced:
        yield Base(announced.sha, announced.tree, f"base-commit, in {announced.label}", certain=True)
    elif not [p for p in places if p.rank < Rank.NOTHING] and clues.list_tree is not None:
        tree = Tree.objects.get(pk=clues.list_tree)
        raise DomainError("tree-not-fetched", f"tree {tree} has not been fetched yet", permanent=False)
    elif not places:
        raise DomainError("tree-not-fetched", "no tree has been fetched yet", permanent=False)
    search = _Search(pre_images(m.diff for m in mails), places)
    lost = "" if announced or not series.base_commit else f"; base-commit {series.base_commit} is in no watched tree"
    version = unwatched_version(clues, places)
    unknown = f"; the subject names {version}, which no watched branch or tag is" if version else ""
    seen = {announced.sha} if announced else set()
    if (found := search.full()) and found[1].sha not in seen:
        place, match = found
        seen.add(match.sha)
        certain = search.wanted.complete and not announced
        how = ("" if certain else "guessed: ") + _blobs_sentence(match, place, search.wanted)
        yield Base(match.sha, place.tree, how + lost, certain=certain)
    for base in _guesses(search, places):
        if base.sha not in seen:
            seen.add(base.sha)
            yield Base(base.sha, base.tree, base.how + lost + unknown, certain=False)


def _blobs_sentence(match: Match, place: Place, wanted: PreImages) -> str:
    images = "the pre-image is" if match.wanted == 1 else f"all {match.wanted} pre-images are"
    unsaid = f"; of {len(wanted.untold)} more files the mails do not say what they were" if wanted.untold else ""
    return f"{images} in {place.label}{unsaid}"


class _Search:
    """Blobs looked for in branches, each branch once, within a time for all."""

    def __init__(self, wanted: PreImages, places: Sequence[Place]) -> None:
        self.wanted = wanted
        self.places = places
        self.end = time.monotonic() + _ALL_SECONDS
        self.matches: dict[str, Match | None] = {}
        self.contents: dict[str, dict[str, str]] = {}

    def full(self) -> tuple[Place, Match] | None:
        """The newest commit with all blobs: of the best rank that has one, of heads forced out, of merged history."""
        if not self.wanted.blobs:
            return None
        for among in (*(of_rank(self.places, rank) for rank in Rank), forced_out_places()):
            found = [(p, m) for p in among if (m := self.in_branch(p)) and m.full]
            if found:
                # One that stands at a head is as new as can be; the content of all is the same.
                return max(found, key=lambda pair: (pair[1].sha == pair[0].sha, pair[0].at))
        heads = list(dict.fromkeys(p.sha for p in self.places))[:_MOST_HEADS]
        match = merged_match(mirror(), heads, self.wanted, seconds=min(_MERGED_SECONDS, max(self._left(), 1.0)))
        return (self._holder(match), match) if match else None

    def in_branch(self, place: Place) -> Match | None:
        if place.sha not in self.matches and (left := self._left()) > 0:
            seconds = min(left, _BRANCH_SECONDS)
            self.matches[place.sha] = newest_match(mirror(), place.sha, self.wanted, seconds=seconds)
        return self.matches.get(place.sha)

    def content(self, commit: str) -> dict[str, str]:
        """Blobs of the files that the series changes, as far as they were there before, at `commit`."""
        if commit not in self.contents:
            paths = [*self.wanted.blobs, *self.wanted.untold]
            self.contents[commit] = content_at(mirror(), commit, paths)
        return self.contents[commit]

    def _left(self) -> float:
        return self.end - time.monotonic()

    def _holder(self, match: Match) -> Place:
        return next((p for p in self.places if mirror().is_ancestor(match.sha, p.sha)), self.places[0])


def _guesses(search: _Search, places: Sequence[Place]) -> Iterator[Base]:
    """For each rank: where most of the pre-images are, if some are known; then heads, newest first."""
    for rank in Rank:
        among = of_rank(places, rank)[:_MOST_HEADS]
        partial = [(m, p) for p in among if search.wanted.blobs and (m := search.in_branch(p)) and m.found]
        if partial:
            match, place = max(partial, key=lambda pair: (pair[0].found, pair[1].at))
            images = f"{match.found} of {match.wanted} pre-images are there"
            yield Base(match.sha, place.tree, f"guessed: {place.why}, and {images}, in {place.label}", certain=False)
        for place in among:
            what = "newest commit" if place.rank == Rank.SUBJECT and "/" not in place.label else "newest head"
            how = f"guessed: {place.why}; {what} that it applies to, {place.label}{_others(place, among, search)}"
            yield Base(place.sha, place.tree, how, certain=False)


def _others(place: Place, among: Sequence[Place], search: _Search) -> str:
    """What to add when another head of the same rank holds something else at the touched files."""
    mine = search.content(place.sha)
    differing = [p.label for p in among if search.content(p.sha) != mine]
    if not differing:
        return ""
    more = f" and {len(differing) - _MOST_NAMED} more" if len(differing) > _MOST_NAMED else ""
    return f"; {', '.join(differing[:_MOST_NAMED])}{more} differ at the changed files"

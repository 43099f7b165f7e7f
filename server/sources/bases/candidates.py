"""Which commits a series may be applied to, best first, and what tells so: never a guess without a word."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from django.db.models import Q

from server.core.errors import DomainError
from server.core.programs.git import GitError, Repository
from server.sources.bases.base_places import (
    Clues,
    Place,
    Rank,
    announced_base,
    forced_out_places,
    of_rank,
    places_for,
    unwatched_version,
)
from server.sources.mail.diffs import Diff
from server.sources.mail.postings import parse_subject
from server.sources.mirror import mirror
from server.sources.models import Message, Series, Tree
from server.sources.screened_mails import ScreenedMail

_NO_BLOB = frozenset("0")
# git abbreviates to at least so many digits in a large tree; fewer would match by chance.
_FEWEST_DIGITS = 7
# A longer list of paths does not fit on a command line, and history is looked at for each.
MOST_PATHS = 500


@dataclass(frozen=True)
class PreImages:
    """`blobs`: path to (abbreviated) blob id before the series; `untold`: paths that were there, but nobody says how.

    Of a treewide change only the first 500 paths are asked for, the others count as untold.
    """

    blobs: Mapping[str, str]
    untold: frozenset[str]

    @property
    def complete(self) -> bool:
        return bool(self.blobs) and not self.untold

    def found_in(self, content: Mapping[str, str]) -> int:
        """How many of the blobs `content` (path to blob id) holds at their paths."""
        return sum(content.get(path, "-").startswith(blob) for path, blob in self.blobs.items())


def pre_images(diffs: Iterable[Diff]) -> PreImages:
    """What the tree below a series held, given the diffs of its patches in order.

    A file that an earlier patch touched tells nothing more, for its pre-image was made by the series itself.
    """
    blobs: dict[str, str] = {}
    untold: set[str] = set()
    touched: set[str] = set()
    for diff in diffs:
        for file in diff.files:
            path = file.old_path
            if path is None or path in touched or path in blobs:
                continue
            if _is_blob(file.old_blob) and len(blobs) < MOST_PATHS:
                blobs[path] = file.old_blob
                untold.discard(path)
            else:
                untold.add(path)
        touched.update(p for file in diff.files for p in (file.old_path, file.new_path) if p is not None)
    return PreImages(blobs, frozenset(untold))


def _is_blob(name: str) -> bool:
    return len(name) >= _FEWEST_DIGITS and set(name) != _NO_BLOB


def content_at(repository: Repository, commit: str, paths: Iterable[str]) -> dict[str, str]:
    """Blob ids of those `paths` that `commit` holds."""
    asked = sorted(paths)
    found: dict[str, str] = {}
    for start in range(0, len(asked), MOST_PATHS):
        some = asked[start : start + MOST_PATHS]
        listed = repository.output("--literal-pathspecs", "ls-tree", "-z", "--full-tree", commit, "--", *some)
        for line in filter(None, listed.decode("utf-8", "surrogateescape").split("\0")):
            entry, _, path = line.partition("\t")
            found[path] = entry.split()[2]
    return found


_LOG = ("--literal-pathspecs", "log", "-z", "-m", "--raw", "--no-abbrev", "--no-renames", "--format=%x01%H %P")
_NOTHING = "0" * 40
# Commits that are looked at whole in merged history; each costs a few milliseconds.
_MOST_LOOKED_AT = 500


@dataclass(frozen=True)
class Match:
    """A commit that holds `found` of the `wanted` blobs; `searched` is False when time ran out before the end."""

    sha: str
    found: int
    wanted: int
    searched: bool = True

    @property
    def full(self) -> bool:
        return self.found == self.wanted


@dataclass(frozen=True)
class _Step:
    """One commit against one parent: what it changed, path to blobs before and after."""

    sha: str
    parents: tuple[str, ...]
    changes: Mapping[str, tuple[str, str]]


def newest_match(repository: Repository, head: str, wanted: PreImages, *, seconds: float) -> Match | None:
    """The newest commit on the first-parent line of `head` with most of the blobs; None if none holds any.

    A commit that changes none of the paths has what its parent has, so that only changes to them are read.
    """
    total = len(wanted.blobs)
    content = content_at(repository, head, wanted.blobs)
    best = Match(head, wanted.found_in(content), total)
    if best.full or _cannot_be_there(repository, wanted):
        return best if best.found else None
    try:
        for step in _steps(repository, ["--first-parent", head], wanted, seconds):
            for path, (before, _) in step.changes.items():
                content[path] = before
            found = wanted.found_in(content)
            if found > best.found and step.parents:
                best = Match(step.parents[0], found, total)
                if best.full:
                    break
    except GitError as error:
        if error.code != "git-timeout":
            raise
        best = Match(best.sha, best.found, total, searched=False)
    return best if best.found else None


def _cannot_be_there(repository: Repository, wanted: PreImages) -> bool:
    """Whether the mirror holds none of the blobs anywhere, so that no history can."""
    asked = "".join(f"{blob}\n" for blob in wanted.blobs.values()).encode()
    said = repository.output("cat-file", "--batch-check", stdin=asked).decode(errors="replace")
    return all(line.endswith(" missing") for line in said.splitlines())


def merged_match(repository: Repository, heads: Sequence[str], wanted: PreImages, *, seconds: float) -> Match | None:
    """The newest commit anywhere below `heads` that holds all of the blobs, also on lines that were merged."""
    if not heads or _cannot_be_there(repository, wanted):
        return None
    seen: set[str] = set()
    try:
        for step in _steps(repository, ["--full-history", *heads], wanted, seconds):
            for sha in _promising(step, wanted):
                if sha in seen:
                    continue
                seen.add(sha)
                found = wanted.found_in(content_at(repository, sha, wanted.blobs))
                if found == len(wanted.blobs):
                    return Match(sha, found, found)
                if len(seen) >= _MOST_LOOKED_AT:
                    return None
    except GitError as error:
        if error.code != "git-timeout":
            raise
    return None


def _promising(step: _Step, wanted: PreImages) -> Iterator[str]:
    """The commit, if it brought one of the blobs; its parents, if it took one away."""
    pairs = [(wanted.blobs[path], change) for path, change in step.changes.items() if path in wanted.blobs]
    if any(old.startswith(blob) for blob, (old, _) in pairs):
        yield from step.parents
    if any(new.startswith(blob) for blob, (_, new) in pairs):
        yield step.sha


def _steps(repository: Repository, what: Sequence[str], wanted: PreImages, seconds: float) -> Iterator[_Step]:
    paths = sorted(wanted.blobs)
    step: _Step | None = None
    changes: dict[str, tuple[str, str]] = {}
    entry = ""
    for record in repository.records(*_LOG, *what, "--", *paths, seconds=seconds):
        text = record.lstrip("\n")
        if text.startswith("\x01"):
            if step:
                yield step
            sha, *parents = text[1:].split()
            changes = {}
            step = _Step(sha, tuple(parents), changes)
        elif text.startswith(":") and not entry:
            entry = text
        elif entry:
            old, new = entry.split()[2:4]
            changes[record] = ("-" if old == _NOTHING else old, "-" if new == _NOTHING else new)
            entry = ""
    if step:
        yield step


def clues_of(series: Series, mails: Sequence[ScreenedMail]) -> Clues:
    """Words of all subjects' brackets and addresses of all To and Cc, of cover letter and patches, in lower case."""
    posted = Message.objects.filter(Q(patches__series=series) | Q(pk=series.cover_id))
    words = {tag.lower() for tag in series.tags}
    addresses: set[str] = set()
    for subject, recipients in posted.values_list("subject", "recipients"):
        words.update(tag.lower() for tag in parse_subject(subject).tags)
        addresses.update(recipients)
    paths = frozenset().union(*(mail.paths for mail in mails))
    return Clues(frozenset(words), frozenset(addresses), paths, series.mailing_list.tree_id)


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

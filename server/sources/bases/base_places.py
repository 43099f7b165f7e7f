"""Where a series may belong: the base that its mails announce, else branches and tags by what speaks for them."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum

from server.core.errors import DomainError
from server.core.programs.git import GitError
from server.sources.mirror import OLD_REFS, PUBLISHED_REFS, mirror, tag_ref, tree_ref
from server.sources.models import Branch, HeadMove, Patch, Revision, Series, Tag, Tree

_VERSION = re.compile(
    r"(?:linux-|stable-|v)?(\d{1,2}\.\d{1,3})(\.\d{1,4}|\.y)?(?:-rc\d{1,2})?(?:-stable)?", re.IGNORECASE
)

# A branch that is forced each day: what was posted on it in the last weeks.
_MOST_FORCED_OUT = 30


class Rank(IntEnum):
    """What speaks for a place, strongest first."""

    SUBJECT = 1
    ADDRESS = 2
    PATH = 3
    NOTHING = 4


@dataclass(frozen=True)
class Clues:
    """What mails say beside their diffs: words of the subject's brackets, To and Cc, changed paths, the list's tree."""

    words: frozenset[str]
    addresses: frozenset[str]
    paths: frozenset[str]
    list_tree: int | None


@dataclass(frozen=True)
class Place:
    """A branch or tag and the commit it stands at; `why` tells what led to it, as the beginning of a sentence."""

    label: str
    sha: str
    tree: Tree
    at: datetime
    rank: Rank
    why: str


def places_for(clues: Clues) -> list[Place]:
    """Every branch that has a head, and tags that the subject names: best rank first, newest first in each."""
    branches = Branch.objects.filter(head__isnull=False, deleted_at=None).select_related("head", "tree")
    rows = [(branch, branch.head) for branch in branches if branch.head]
    by_path = _trees_of_paths([branch.tree for branch, _ in rows], clues.paths)
    named = {branch.name.lower() for branch, _ in rows} & clues.words
    found = [_place(str(b), head, b.tree, *_judged(b, clues, named, by_path)) for b, head in rows]
    found += _named_tags(clues.words)
    return sorted(found, key=lambda p: (p.rank, -p.at.timestamp(), p.label))


def _place(label: str, revision: Revision, tree: Tree, rank: Rank, why: str) -> Place:
    return Place(label, revision.sha, tree, revision.committed_at, rank, why)


def _judged(branch: Branch, clues: Clues, named: set[str], by_path: frozenset[int]) -> tuple[Rank, str]:
    tree = branch.tree
    if word := _word_for(branch, clues.words, named):
        return Rank.SUBJECT, f"the subject names {word}"
    if address := next((a for a in tree.addresses if a.lower() in clues.addresses), ""):
        return Rank.ADDRESS, f"the mails went to {address}"
    if tree.pk == clues.list_tree:
        return Rank.ADDRESS, "it is the tree of the list"
    if tree.pk in by_path:
        return Rank.PATH, f"the changed files belong to {tree}"
    return Rank.NOTHING, "nothing names it"


def _word_for(branch: Branch, words: frozenset[str], named: set[str]) -> str:
    """The word of the subject that names this branch, or its tree unless it is one of the branch names in `named`."""
    own = {branch.name.lower(), f"{branch.tree.name}/{branch.name}".lower(), *_stable_names(branch.name)}
    if found := words & own:
        return min(found)
    trees = {branch.tree.name.lower(), *(w.lower() for w in branch.tree.subject_tags)}
    return min(words & (trees - named), default="")


def _stable_names(branch: str) -> set[str]:
    """How subjects call a branch such as linux-6.1.y."""
    found = re.fullmatch(r"linux-(\d{1,2}\.\d{1,3})\.y", branch.lower())
    return (
        {f"{found[1]}.y", found[1], f"stable-{found[1]}", f"{found[1]}-stable", f"stable-{found[1]}.y"}
        if found
        else set()
    )


def _named_tags(words: frozenset[str]) -> list[Place]:
    """Tags such as v6.1.176 that the subject names, with or without their v; each where it stands now."""
    if not words:
        return []
    names = words | {f"v{word}" for word in words}
    rows = Tag.objects.filter(name__in=names).select_related("revision", "tree").order_by("pk")
    newest = {(row.tree_id, row.name): row for row in rows}
    return [
        _place(str(row), row.revision, row.tree, Rank.SUBJECT, f"the subject names {row.name}")
        for row in newest.values()
    ]


def unwatched_version(clues: Clues, places: Sequence[Place]) -> str:
    """The word of the subject that means a version of the kernel, where nothing that is watched is that version."""
    named = sorted(word for word in clues.words if _VERSION.fullmatch(word))
    return named[0] if named and not of_rank(places, Rank.SUBJECT) else ""


def forced_out_places() -> list[Place]:
    """The last heads that branches were forced away from or deleted with: bases of mails sent before."""
    kinds = (HeadMove.Kind.FORCED, HeadMove.Kind.DELETED)
    moves = HeadMove.objects.filter(kind__in=kinds, before__isnull=False).select_related("branch__tree", "before")
    return [
        _place(f"{move.branch} as it was before", move.before, move.branch.tree, Rank.NOTHING, "")
        for move in moves.order_by("-pk")[:_MOST_FORCED_OUT]
        if move.before
    ]


def _trees_of_paths(trees: Iterable[Tree], paths: frozenset[str]) -> frozenset[int]:
    """The trees that take most of the changed `paths`; none if no tree takes any."""
    shares = {tree.pk: sum(path.startswith(tuple(tree.paths)) for path in paths) for tree in trees if tree.paths}
    most = max(shares.values(), default=0)
    return frozenset(pk for pk, share in shares.items() if share == most) if most else frozenset()


def of_rank(places: Sequence[Place], rank: Rank) -> list[Place]:
    return [place for place in places if place.rank == rank]


_SECONDS = 60.0
# git itself writes no fewer digits.
_ID = re.compile(r"[0-9a-f]{7,40}")


@dataclass(frozen=True)
class Announced:
    sha: str
    tree: Tree
    label: str


def announced_base(named: str, places: Sequence[Place]) -> Announced | None:
    """Where the commit is that the mails name, by its id, the begin of it, or a watched tag.

    None when the mirror has it not, has several, or has it only from somewhere that nobody watches.

    The best place for the series that holds it is named; then other branches, tags, and what branches were forced
    away from: a rebasing tree drops the bases of yesterday's mails.
    """
    # Some name the tag's own object instead of the commit. No other words of git's: they are a stranger's.
    sha = mirror().resolve(named) if _ID.fullmatch(named) else _tagged(named, places)
    if sha is None:
        return None
    # One walk for all refs: asking branch by branch would walk through a kernel's history for each that has it not.
    holding = _refs_holding(sha)
    for place in places:
        if tree_ref(place.tree, place.label.partition("/")[2]) in holding:
            return Announced(sha, place.tree, place.label)
    return _in_refs(sha, holding) or _in_series(sha)


def _tagged(name: str, places: Sequence[Place]) -> str | None:
    """The commit of a watched tag, of the first tree that could be meant and has one of this name."""
    tags = dict(Tag.objects.filter(name=name).order_by("pk").values_list("tree_id", "revision__sha"))
    meant = (tags[place.tree.pk] for place in places if place.tree.pk in tags)
    return next(meant, None) or next(iter(tags.values()), None)


def _refs_holding(sha: str) -> set[str]:
    """Full names of refs.

    DomainError `base-not-searched`, temporary: before its first upkeep a mirror has no commit-graph, and is slow.
    """
    asked = ("for-each-ref", f"--contains={sha}", "--format=%(refname)", *PUBLISHED_REFS)
    try:
        return set(mirror().output(*asked, timeout=_SECONDS).decode().split())
    except GitError as error:
        if error.code != "git-timeout":
            raise
        message = f"which branches hold base-commit {sha} is not known yet: {error.message}"
        raise DomainError("base-not-searched", message, permanent=False) from error


def _in_refs(sha: str, holding: set[str]) -> Announced | None:
    """In a tag, a branch that is gone, or a head that a branch was forced away from."""
    for branch in Branch.objects.select_related("tree"):
        if tree_ref(branch.tree, branch.name) in holding:
            return Announced(sha, branch.tree, str(branch))
    for tag in Tag.objects.select_related("tree", "revision").order_by("-pk"):
        if tag_ref(tag.tree, tag.name) in holding:
            return Announced(sha, tag.tree, str(tag))
    old = [ref.rpartition("/")[2] for ref in holding if ref.startswith(OLD_REFS)]
    move = HeadMove.objects.filter(before__sha__in=old).select_related("branch__tree").first()
    return Announced(sha, move.branch.tree, f"{move.branch} as it was before") if move else None


def _in_series(sha: str) -> Announced | None:
    """A commit that we made of a series: its mails were allowed to run when it was applied."""
    made = Patch.objects.filter(revision__sha=sha, series__state__in=[Series.State.APPLIED, Series.State.SUPERSEDED])
    patch = made.select_related("series", "revision__tree").first()
    if patch is None or patch.revision is None:
        return None
    return Announced(
        sha, patch.revision.tree, f"patch {patch.index}/{patch.series.total} of <{patch.series.root_message_id}>"
    )

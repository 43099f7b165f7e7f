"""Where a series may belong when nothing names its base: branches and tags, ranked by what speaks for them."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum

from server.sources.models import Branch, HeadMove, Revision, Tag, Tree

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

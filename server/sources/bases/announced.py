"""The base-commit that the mails name: believed where a watched branch or tag holds it, or a series of ours made it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from server.core.errors import DomainError
from server.core.git import GitError
from server.sources.bases.places import Place
from server.sources.mirror import OLD_REFS, PUBLISHED_REFS, mirror, tag_ref, tree_ref
from server.sources.models import Branch, HeadMove, Patch, Series, Tag, Tree

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

"""What a remote has and the mirror, or the rows, have not."""

from collections.abc import Mapping
from dataclasses import dataclass

from server.core.git import Repository
from server.sources.mirror import tag_refs, tree_refs
from server.sources.models import Branch, Tree
from server.sources.trees.remotes import Listing


@dataclass(frozen=True)
class News:
    """Branches and tags to be fetched, names to object ids, and branches that are gone. False when there is none."""

    heads: dict[str, str]
    tags: dict[str, str]
    gone: frozenset[str]

    def __bool__(self) -> bool:
        return bool(self.heads or self.tags or self.gone)


def standing_refs(repository: Repository, tree: Tree) -> Listing:
    """What the mirror has of `tree`."""
    heads, tags = tree_refs(tree), tag_refs(tree)
    lines = repository.output("for-each-ref", "--format=%(objectname) %(refname)", heads, tags).decode().splitlines()
    refs = {ref: sha for sha, ref in (line.split(" ", 1) for line in lines)}
    return Listing(
        {ref.removeprefix(heads): sha for ref, sha in refs.items() if ref.startswith(heads)},
        {ref.removeprefix(tags): sha for ref, sha in refs.items() if ref.startswith(tags)},
    )


def compare(rows: Mapping[str, Branch], standing: Listing, watched: Listing, *, gone: set[str]) -> News:
    """A branch is news, too, where mirror and row disagree: a predecessor was killed between the two."""
    settled = {
        name: row.head.sha
        for name, row in rows.items()
        if row.head and row.deleted_at is None and standing.heads.get(name) == row.head.sha
    }
    return News(
        heads={name: sha for name, sha in watched.heads.items() if settled.get(name) != sha},
        tags={name: sha for name, sha in watched.tags.items() if standing.tags.get(name) != sha},
        gone=frozenset(gone),
    )

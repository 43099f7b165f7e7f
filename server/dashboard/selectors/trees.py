"""The page of one tree: what its policy says, where its branches stand, how they moved and what was chosen."""

from collections.abc import Mapping
from dataclasses import dataclass

from server.core import clock
from server.dashboard.facts import Fact
from server.dashboard.selectors.moves import (
    MOVE_PARTS,
    BranchRow,
    MoveRow,
    TagRow,
    WantedRow,
    branch_rows,
    move_rows,
    tag_rows,
    wanted_rows,
)
from server.dashboard.selectors.paging import Paged, paged
from server.dashboard.selectors.watchers import Watcher, watcher
from server.sources.models import Branch, HeadMove, Tag, Tree, WantedRevision

_PER_TABLE = 25


@dataclass(frozen=True, slots=True)
class TreeFacts:
    watcher: Watcher
    rebasing: bool
    policy: tuple[Fact, ...]
    lists: tuple[str, ...]
    branches: Paged[BranchRow]
    moves: Paged[MoveRow]
    wanted: Paged[WantedRow]
    tags: Paged[TagRow]


def tree_facts(name: str, pages: Mapping[str, str]) -> TreeFacts | None:
    """`pages` has the number of the page of each table, by its name: branches, moves, wanted, tags."""
    tree = Tree.objects.filter(name=name).first()
    if tree is None:
        return None
    branches = Branch.objects.filter(tree=tree).select_related("head", "tree").order_by("deleted_at", "name")
    moved = HeadMove.objects.filter(branch__tree=tree).select_related(*MOVE_PARTS).order_by("-id")
    wanted = WantedRevision.objects.filter(tree=tree).select_related("revision__tree").order_by("-id")
    tags = Tag.objects.filter(tree=tree).select_related("revision__tree").order_by("-id")
    return TreeFacts(
        watcher=watcher("tree", tree, clock.now()),
        rebasing=tree.rebasing,
        policy=_policy(tree),
        lists=tuple(tree.lists.values_list("name", flat=True)),
        branches=paged(branches, pages.get("branches", "1"), branch_rows, _PER_TABLE),
        moves=paged(moved, pages.get("moves", "1"), move_rows, _PER_TABLE),
        wanted=paged(wanted, pages.get("wanted", "1"), wanted_rows, _PER_TABLE),
        tags=paged(tags, pages.get("tags", "1"), tag_rows, _PER_TABLE),
    )


def _policy(tree: Tree) -> tuple[Fact, ...]:
    per_day = "all" if tree.heads_per_day is None else f"at most {tree.heads_per_day} in 24 hours"
    told = (
        ("branches", tree.branch_patterns),
        ("new heads measured", [per_day]),
        ("tags measured", tree.tag_patterns),
        ("merges measured", [f"by {address}" for address in tree.merges_by]),
        ("microarchitectures", tree.uarchs or ["all"]),
        ("benchmarks", ["default set", *tree.benchmarks]),
        ("priority", [str(tree.priority)]),
        ("patches marked", tree.subject_tags),
        ("patches sent to", tree.addresses),
        ("patches of paths", tree.paths),
        ("poll interval", [f"{tree.poll_seconds} s"]),
    )
    return tuple(Fact(title, ", ".join(values)) for title, values in told if values)

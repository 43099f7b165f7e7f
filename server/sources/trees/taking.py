"""Taking news of a tree into the mirror and the rows, so that being killed anywhere loses nothing.

The order matters. Objects come first, held by no ref: nothing prunes them. What branches leave behind gets its ref
before theirs move. The rows come before the refs: rows that were not written are missed at the next poll because the
refs still differ from the remote.
"""

from collections.abc import Iterable, Mapping

from server.core.git import Repository
from server.sources.mirror import old_ref, tag_ref, tree_ref
from server.sources.models import Branch, Revision, Tree
from server.sources.trees.heads import record_steps
from server.sources.trees.news import News
from server.sources.trees.refnames import in_the_way
from server.sources.trees.remotes import Listing, fetch_refs
from server.sources.trees.steps import examine, leaves_behind

_SHOWN = 3


def take(
    repository: Repository,
    tree: Tree,
    rows: Mapping[str, Branch],
    standing: Listing,
    news: News,
    *,
    timeout: float | None,
) -> tuple[list[Revision], tuple[str, ...]]:
    """Fetch and record `news`; returns the heads that moved, and complaints about those that did not come."""
    refs = [*(f"refs/heads/{name}" for name in news.heads), *(f"refs/tags/{name}" for name in news.tags)]
    if refs:
        fetch_refs(repository, tree.url, refs, timeout=timeout)
    heads, tags = _commits(repository, news.heads), _commits(repository, news.tags)
    # Tags of trees and blobs exist; they get a ref here, so that they are no news again, but no row.
    objects = _known(repository, news.tags.values())
    steps = [examine(repository, n, sha, branch=rows.get(n), merges_by=tree.merges_by) for n, sha in heads.items()]
    _make_way(repository, tree, rows, standing, News(heads, news.tags, news.gone))
    moved = record_steps(tree=tree, steps=[step for step in steps if step], gone=news.gone, tags=tags)
    moves = {tree_ref(tree, name): sha for name, sha in heads.items()}
    moves |= {tag_ref(tree, name): sha for name, sha in news.tags.items() if sha in objects}
    _update_refs(repository, moves)
    return moved, _lost(news.heads.keys() - heads.keys())


def _make_way(repository: Repository, tree: Tree, rows: Mapping[str, Branch], standing: Listing, news: News) -> None:
    """Give a ref to every commit that would lose its own, then delete the refs of what is gone or in the way."""
    leaving: list[tuple[str | None, str | None]] = []
    leaving += [(standing.heads.get(name), sha) for name, sha in news.heads.items()]
    leaving += [(_head(rows.get(name)), sha) for name, sha in news.heads.items()]
    old_heads = {n for name in news.heads for n in in_the_way(name, standing.heads)} | news.gone
    old_tags = {n for name in news.tags for n in in_the_way(name, standing.tags)}
    leaving += [(sha, None) for name in old_heads for sha in (standing.heads.get(name), _head(rows.get(name)))]
    # Tags are objects of their own, which no later commit holds.
    leaving += [(standing.tags.get(name), None) for name in old_tags | news.tags.keys()]
    kept = [before for before, after in leaving if before and leaves_behind(repository, before, after)]
    _update_refs(repository, {old_ref(sha): sha for sha in sorted(_known(repository, kept))})
    doomed = [tree_ref(tree, name) for name in sorted(old_heads & standing.heads.keys())]
    doomed += [tag_ref(tree, name) for name in sorted(old_tags)]
    if doomed:
        repository.output("update-ref", "--stdin", stdin="".join(f"delete {ref}\n" for ref in doomed).encode())


def _head(row: Branch | None) -> str | None:
    return row.head.sha if row and row.head else None


def _update_refs(repository: Repository, refs: Mapping[str, str]) -> None:
    """All of them in one step, or none."""
    if refs:
        lines = "".join(f"update {ref} {sha}\n" for ref, sha in refs.items())
        repository.output("update-ref", "--stdin", stdin=lines.encode())


def _commits(repository: Repository, refs: Mapping[str, str]) -> dict[str, str]:
    """Names to commits, of those of `refs` (names to object ids) that are commits or tags of commits, and are there."""
    answers = _asked(repository, [f"{sha}^{{commit}}" for sha in refs.values()])
    return {name: answer for name, answer in zip(refs, answers, strict=True) if answer}


def _known(repository: Repository, ids: Iterable[str]) -> set[str]:
    """Those of `ids` that are objects of the mirror."""
    return {answer for answer in _asked(repository, list(ids)) if answer}


def _asked(repository: Repository, names: list[str]) -> list[str]:
    """The object id of each of `names`, or nothing."""
    if not names:
        return []
    stdin = "".join(f"{name}\n" for name in names).encode()
    answers = repository.output("cat-file", "--batch-check=%(objectname)", stdin=stdin).decode().splitlines()
    return ["" if " " in answer else answer for answer in answers]


def _lost(names: Iterable[str]) -> tuple[str, ...]:
    """Probably moved on since they were listed; the next poll will tell."""
    some = sorted(names)
    return (f"did not come, or are no commits: branches {', '.join(some[:_SHOWN])}",) if some else ()

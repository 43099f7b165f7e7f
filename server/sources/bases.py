"""Which commits a series may be applied to, best first."""

from dataclasses import dataclass

from server.core.errors import DomainError
from server.sources.mirror import mirror, tree_ref
from server.sources.models import Branch, Series


@dataclass(frozen=True)
class Base:
    sha: str
    branch: Branch
    why: str


def candidate_bases(series: Series) -> list[Base]:
    """The commit that the author names, if a watched branch holds it; then the heads of the list's tree, newest first.

    DomainError `tree-not-fetched`, temporary, while that tree has no head yet.
    """
    heads = Branch.objects.filter(head__isnull=False).select_related("head", "tree").order_by("-head__committed_at")
    own = [b for b in heads if b.tree_id == series.mailing_list.tree_id]
    others = [b for b in heads if b.tree_id != series.mailing_list.tree_id]
    named = _named_base(series, own + others)
    if not named and not own:
        raise DomainError(
            "tree-not-fetched", f"tree {series.mailing_list.tree} has not been fetched yet", permanent=False
        )
    return named + [Base(b.head.sha, b, f"head of {b}") for b in own if b.head]


def _named_base(series: Series, branches: list[Branch]) -> list[Base]:
    sha = series.base_commit
    if not sha:
        return []
    repository = mirror()
    if repository.resolve(sha) is None:
        return []
    for branch in branches:
        if repository.is_ancestor(sha, tree_ref(branch.tree, branch.name)):
            return [Base(sha, branch, f"base-commit, in {branch}")]
    return []

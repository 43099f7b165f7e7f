"""The revisions among which a change is looked for."""

from dataclasses import dataclass

from server.detection.models import Bisection, Finding
from server.sources.mirror import mirror, record_revisions
from server.sources.models import Revision, Series

# A search among more would take no longer, but its row would: between two measured heads lie hundreds.
_MOST = 10_000


@dataclass(frozen=True)
class Between:
    """Commits in their order, the good end first, the bad end last; none, and why, where there is no such row."""

    shas: tuple[str, ...]
    why_not: str = ""


def between(finding: Finding) -> Between:
    """The base and patches of a series; of a branch, its first-parent history from before to after.

    GitError, temporary, where the mirror cannot be read.
    """
    if finding.series is not None:
        return _of_series(finding.series)
    assert finding.before is not None
    assert finding.after is not None
    return _of_history(finding.before.sha, finding.after.sha)


def _of_series(series: Series) -> Between:
    made = [patch.revision for patch in series.patches.select_related("revision").order_by("index")]
    if series.base is None or not made or None in made:
        return Between((), "its patches are no commits")
    return Between((series.base.sha, *(revision.sha for revision in made if revision is not None)))


def _of_history(before: str, after: str) -> Between:
    commits = mirror().commits(f"{before}..{after}", limit=_MOST + 1)
    if len(commits) > _MOST:
        return Between((), f"more than {_MOST} revisions lie between {before[:12]} and {after[:12]}")
    if not commits or before not in commits[-1].parents[:1]:
        return Between((), f"{before[:12]} is no first-parent ancestor of {after[:12]}")
    return Between((before, *(commit.sha for commit in reversed(commits))))


def revision_at(bisection: Bisection, index: int) -> Revision:
    """The row of a bisection's revision, written when it is first asked for."""
    sha = bisection.revisions[index]
    known = Revision.objects.filter(sha=sha).first()
    return known or record_revisions(tree=_end(bisection).tree, shas=[sha])[0]


def name_of(bisection: Bisection, index: int) -> str:
    """As people call it: patch 4 of 6, or a short commit id."""
    if bisection.finding.series_id is None:
        return bisection.revisions[index][:12]
    return f"patch {index} of {len(bisection.revisions) - 1}" if index else "the base"


def described(bisection: Bisection, index: int) -> str:
    """Its name and its subject."""
    return f"{name_of(bisection, index)}: {revision_at(bisection, index).subject}"


def _end(bisection: Bisection) -> Revision:
    return Revision.objects.select_related("tree").get(sha=bisection.revisions[-1])

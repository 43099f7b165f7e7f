"""What a branch's new place in the mirror means: how it moved, which commits came, which merges are among them."""

from collections.abc import Iterable
from dataclasses import dataclass

from server.core.git import GitError, Repository
from server.sources.models import Branch, HeadMove

# So many commits of a step become rows; a rebased tree brings hundreds each time, a first release brings thousands.
MOST_REVISIONS = 200
# A merge window brings some 400 merges in two weeks.
MOST_MERGES = 1000


@dataclass(frozen=True)
class Step:
    """One branch at its new head. `shas` are first parents, oldest first, the head last; `missed` were left out."""

    name: str
    head: str
    kind: HeadMove.Kind
    shas: tuple[str, ...]
    missed: int = 0
    merges: tuple[tuple[str, str], ...] = ()


def examine(
    repository: Repository, name: str, head: str, *, branch: Branch | None, merges_by: Iterable[str]
) -> Step | None:
    """The step of a branch to commit `head`; None if it stood there already. `merges_by` are addresses.

    A branch seen for the first time brings its head and the commit before, because a whole history would be a million
    rows that nobody asked for.
    """
    before = branch.head if branch else None
    if branch is None or before is None or repository.resolve(before.sha) is None:
        kind = HeadMove.Kind.CREATED if before is None else HeadMove.Kind.FORCED
        return Step(name, head, kind, tuple(reversed([c.sha for c in repository.commits(head, limit=2)])))
    if before.sha == head:
        return None if branch.deleted_at is None else Step(name, head, HeadMove.Kind.RESTORED, (head,))
    forward = repository.is_ancestor(before.sha, head)
    kind = HeadMove.Kind.ADVANCED if forward else HeadMove.Kind.FORCED
    if branch.deleted_at:
        kind = HeadMove.Kind.RESTORED
    shas = [c.sha for c in repository.commits(head, f"^{before.sha}", limit=MOST_REVISIONS)]
    merges = _merges(repository, before.sha, head, {address.lower() for address in merges_by})
    # A branch that was set back to an older commit has nothing new, but still another head.
    return Step(name, head, kind, tuple(reversed(shas)) or (head,), _missed(repository, before.sha, head, shas), merges)


def _missed(repository: Repository, before: str, head: str, shas: list[str]) -> int:
    if len(shas) < MOST_REVISIONS:
        return 0
    counted = repository.output("rev-list", "--count", "--first-parent", head, f"^{before}", "--")
    return int(counted) - len(shas)


def _merges(repository: Repository, before: str, head: str, people: set[str]) -> tuple[tuple[str, str], ...]:
    """(commit, address) of the new merges that one of `people` committed, oldest first."""
    if not people:
        return ()
    some = ("--first-parent", "--merges", f"-n{MOST_MERGES}", "--format=%H %ce", head, f"^{before}", "--")
    lines = repository.output("log", *some).decode(errors="replace").splitlines()
    found = [line.partition(" ")[::2] for line in lines]
    return tuple((sha, address.lower()) for sha, address in reversed(found) if address.lower() in people)


def leaves_behind(repository: Repository, before: str, after: str | None) -> bool:
    """Whether nothing would hold `before` any more once its ref names `after` (None: is deleted)."""
    if before == after:
        return False
    if after is None:
        return True
    try:
        return not repository.is_ancestor(before, after)
    except GitError:
        # It took too long to find out: one ref too many does no harm.
        return True

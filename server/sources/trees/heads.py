"""What became of each branch and tag: how it moved, and which of its revisions deserve measuring."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

import structlog
from django.db import transaction

from server.core import clock
from server.core.programs.git import GitError, Repository
from server.sources.mirror import record_revisions
from server.sources.models import Branch, HeadMove, Revision, Tag, Tree, WantedRevision

# So many commits of a step become rows; a rebased tree brings hundreds each time, a first release brings thousands.
MOST_REVISIONS = 200
# A merge window brings some 400 merges in two weeks.
MOST_MERGES = 1000


@dataclass(frozen=True)
class HeadStep:
    """One branch at its new head. `shas` are first parents, oldest first, the head last; `missed` were left out."""

    name: str
    head: str
    kind: HeadMove.Kind
    shas: tuple[str, ...]
    missed: int = 0
    merges: tuple[tuple[str, str], ...] = ()


def examine(
    repository: Repository, name: str, head: str, *, branch: Branch | None, merges_by: Iterable[str]
) -> HeadStep | None:
    """The step of a branch to commit `head`; None if it stood there already. `merges_by` are addresses.

    A branch seen for the first time brings its head and the commit before, because a whole history would be a million
    rows that nobody asked for.
    """
    before = branch.head if branch else None
    if branch is None or before is None or repository.resolve(before.sha) is None:
        kind = HeadMove.Kind.CREATED if before is None else HeadMove.Kind.FORCED
        return HeadStep(name, head, kind, tuple(reversed([c.sha for c in repository.commits(head, limit=2)])))
    if before.sha == head:
        return None if branch.deleted_at is None else HeadStep(name, head, HeadMove.Kind.RESTORED, (head,))
    forward = repository.is_ancestor(before.sha, head)
    kind = HeadMove.Kind.ADVANCED if forward else HeadMove.Kind.FORCED
    if branch.deleted_at:
        kind = HeadMove.Kind.RESTORED
    shas = [c.sha for c in repository.commits(head, f"^{before.sha}", limit=MOST_REVISIONS)]
    merges = _merges(repository, before.sha, head, {address.lower() for address in merges_by})
    # A branch that was set back to an older commit has nothing new, but still another head.
    return HeadStep(
        name, head, kind, tuple(reversed(shas)) or (head,), _missed(repository, before.sha, head, shas), merges
    )


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


log = structlog.get_logger(__name__)

_DAY = timedelta(hours=24)
# What was wanted while a clock was ahead must not use up the days until then.
_SKEW = timedelta(minutes=1)
# Tags of releases come within days of each other; a tag so much older than those known is one that a new pattern lets
# in, and nobody asked for years of releases.
_LATE_TAG = timedelta(days=30)


@dataclass(frozen=True)
class NewHead:
    """Where a branch stands now, and the merges since it was seen last with the person who committed each."""

    branch: str
    revision: Revision
    merges: tuple[tuple[Revision, str], ...] = ()


def want_tags(tree: Tree, tags: Iterable[Tag], *, known: Iterable[Tag]) -> None:
    """Want the new `tags`; of a tree none of whose tags was known only the newest.

    Tags are never counted against the limit of heads.
    """
    newest_known = max((tag.revision.committed_at for tag in known), default=None)
    ordered = sorted(tags, key=lambda tag: (tag.revision.committed_at, tag.name))
    for tag in ordered[-1:] if newest_known is None else ordered:
        if newest_known is None or tag.revision.committed_at > newest_known - _LATE_TAG:
            _want(tree, tag.revision, WantedRevision.Why.TAG, tag.name)


def decide(tree: Tree, heads: Iterable[NewHead]) -> dict[str, str]:
    """Write what is wanted of the new heads, and say for each branch what was decided and why.

    When more came in than the tree's limit of heads in 24 hours allows, the newest win.
    """
    newest_first = sorted(heads, key=lambda head: (head.revision.committed_at, head.branch), reverse=True)
    merges = {head.branch: _want_merges(tree, head) for head in newest_first}
    decisions = {head.branch: _decide_head(tree, head) for head in newest_first}
    return {branch: "; ".join([said, *merges[branch]]) for branch, said in decisions.items()}


def catch_up(tree: Tree, branches: Iterable[Branch]) -> None:
    """Want heads that the limit of a day left out and that still stand, as far as there is room by now.

    Else the last head before a quiet week would never be measured.
    """
    if tree.heads_per_day == 0:
        return
    heads = {branch.head: branch for branch in branches if branch.head and branch.deleted_at is None}
    wanted = set(WantedRevision.objects.filter(tree=tree, revision__in=heads).values_list("revision", flat=True))
    left_out = [head for head in heads if head.pk not in wanted]
    for head in sorted(left_out, key=lambda head: head.committed_at, reverse=True):
        # Heads from before there was a policy were never left out by it.
        if HeadMove.objects.filter(branch=heads[head], after=head).exists():
            decision = _decide_head(tree, NewHead(heads[head].name, head))
            log.debug("head_decided_again", branch=str(heads[head]), sha=head.sha, decision=decision)


def _want_merges(tree: Tree, head: NewHead) -> list[str]:
    people: dict[str, int] = {}
    for revision, person in head.merges:
        if _want(tree, revision, WantedRevision.Why.MERGE, f"{head.branch}: merged by {person}", head.branch) is None:
            people[person] = people.get(person, 0) + 1
    return [f"wanted: {count} {'merge' if count == 1 else 'merges'} by {person}" for person, count in people.items()]


def _decide_head(tree: Tree, head: NewHead) -> str:
    before = WantedRevision.objects.filter(tree=tree, revision=head.revision).first()
    if before:
        return f"wanted already {_said(before)}"
    if same := _same_content(tree, head.revision):
        return f"not wanted: same content as {same.revision.sha[:12]}, wanted already"
    if tree.heads_per_day is not None:
        now = clock.now()
        heads = WantedRevision.objects.filter(tree=tree, why=WantedRevision.Why.HEAD)
        today = heads.filter(created_at__gt=now - _DAY, created_at__lte=now + _SKEW).count()
        if today >= tree.heads_per_day:
            return _over_limit(today, tree.heads_per_day)
    before = _want(tree, head.revision, WantedRevision.Why.HEAD, head.branch, head.branch)
    return f"wanted already {_said(before)}" if before else "wanted: head"


def _over_limit(today: int, limit: int) -> str:
    if limit == 0:
        return "not wanted: no heads of this tree are measured"
    return f"not wanted: {today} of {limit} heads in 24 hours already"


def _same_content(tree: Tree, revision: Revision) -> WantedRevision | None:
    """On a tree that is rebased all the time, most new heads hold the same files as some head before."""
    if not tree.rebasing:
        return None
    wanted = WantedRevision.objects.filter(tree=tree, revision__tree_sha=revision.tree_sha)
    return wanted.select_related("revision").order_by("id").first()


def _want(
    tree: Tree, revision: Revision, why: WantedRevision.Why, detail: str, branch: str = ""
) -> WantedRevision | None:
    """None when it is wanted now; what wanted it before otherwise."""
    row, made = WantedRevision.objects.get_or_create(
        tree=tree, revision=revision, defaults={"why": why, "detail": detail, "branch": branch}
    )
    return None if made else row


def _said(wanted: WantedRevision) -> str:
    return f"as {wanted.get_why_display()} ({wanted.detail})" if wanted.detail else f"as {wanted.get_why_display()}"


@transaction.atomic
def record_steps(
    *, tree: Tree, steps: Iterable[HeadStep], gone: Iterable[str], tags: Mapping[str, str]
) -> list[Revision]:
    """Move the branches, mark those that are gone as deleted, store new tags (name to commit); returns the new heads.

    All of one poll in one transaction, because the policy looks at all of it at once.
    """
    # Tags first: a release is wanted as such, and does not count as one of the day's heads.
    _record_tags(tree, tags)
    rows = {row.name: row for row in tree.branches.select_for_update(of=("self",)).select_related("head")}
    moved = [(step, record_revisions(tree=tree, shas=list(step.shas), foreign=False)[-1]) for step in steps]
    decisions = decide(tree, [_new_head(tree, step, head) for step, head in moved])
    for step, head in moved:
        branch = rows.get(step.name) or Branch.objects.create(tree=tree, name=step.name)
        _move(branch, step, head, decisions[step.name])
    for name in gone:
        _delete(rows[name])
    return [head for _, head in moved]


def _new_head(tree: Tree, step: HeadStep, head: Revision) -> NewHead:
    merges = record_revisions(tree=tree, shas=[sha for sha, _ in step.merges], foreign=False)
    return NewHead(step.name, head, tuple((row, person) for row, (_, person) in zip(merges, step.merges, strict=True)))


def _move(branch: Branch, step: HeadStep, head: Revision, decision: str) -> None:
    if step.missed:
        decision += f"; {step.missed} more revisions came with it and are not recorded"
    HeadMove.objects.create(branch=branch, kind=step.kind, before=branch.head, after=head, decision=decision)
    branch.head, branch.head_at, branch.deleted_at = head, clock.now(), None
    branch.save(update_fields=["head", "head_at", "deleted_at"])
    log.info("head_moved", branch=str(branch), kind=step.kind.value, sha=head.sha, decision=decision)


def _delete(branch: Branch) -> None:
    """The row and the last head stay: the branch may come back, and its past was measured."""
    HeadMove.objects.create(
        branch=branch, kind=HeadMove.Kind.DELETED, before=branch.head, decision="the remote has it no longer"
    )
    branch.deleted_at = clock.now()
    branch.save(update_fields=["deleted_at"])
    log.info("branch_deleted", branch=str(branch))


def _record_tags(tree: Tree, tags: Mapping[str, str]) -> None:
    if not tags:
        return
    known = list(tree.tags.select_related("revision").order_by("-revision__committed_at")[:1])
    revisions = dict(zip(tags, record_revisions(tree=tree, shas=list(tags.values()), foreign=False), strict=True))
    rows = [Tag(tree=tree, name=name, revision=revision) for name, revision in revisions.items()]
    Tag.objects.bulk_create(rows, ignore_conflicts=True)
    want_tags(tree, rows, known=known)
    log.info("tags_seen", tree=tree.name, tags=len(rows))

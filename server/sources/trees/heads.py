"""Recording where branches and tags of a tree stand: rows for each step, with what is wanted of it, in one go."""

from collections.abc import Iterable, Mapping

import structlog
from django.db import transaction

from server.core import clock
from server.sources.mirror import record_revisions
from server.sources.models import Branch, HeadMove, Revision, Tag, Tree
from server.sources.trees import policy
from server.sources.trees.steps import Step

log = structlog.get_logger(__name__)


@transaction.atomic
def record_steps(*, tree: Tree, steps: Iterable[Step], gone: Iterable[str], tags: Mapping[str, str]) -> list[Revision]:
    """Move the branches, mark those that are gone as deleted, store new tags (name to commit); returns the new heads.

    All of one poll in one transaction, because the policy looks at all of it at once.
    """
    # Tags first: a release is wanted as such, and does not count as one of the day's heads.
    _record_tags(tree, tags)
    rows = {row.name: row for row in tree.branches.select_for_update(of=("self",)).select_related("head")}
    moved = [(step, record_revisions(tree=tree, shas=list(step.shas), foreign=False)[-1]) for step in steps]
    decisions = policy.decide(tree, [_new_head(tree, step, head) for step, head in moved])
    for step, head in moved:
        branch = rows.get(step.name) or Branch.objects.create(tree=tree, name=step.name)
        _move(branch, step, head, decisions[step.name])
    for name in gone:
        _delete(rows[name])
    return [head for _, head in moved]


def _new_head(tree: Tree, step: Step, head: Revision) -> policy.NewHead:
    merges = record_revisions(tree=tree, shas=[sha for sha, _ in step.merges], foreign=False)
    return policy.NewHead(
        step.name, head, tuple((row, person) for row, (_, person) in zip(merges, step.merges, strict=True))
    )


def _move(branch: Branch, step: Step, head: Revision, decision: str) -> None:
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
    policy.want_tags(tree, rows, known=known)
    log.info("tags_seen", tree=tree.name, tags=len(rows))

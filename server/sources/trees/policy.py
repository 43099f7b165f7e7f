"""Which revisions of a tree deserve measuring: tags, merges of named people, and new heads, so many a day."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

import structlog

from server.core import clock
from server.sources.models import Branch, HeadMove, Revision, Tag, Tree, WantedRevision

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
        if _want(tree, revision, WantedRevision.Why.MERGE, f"{head.branch}: merged by {person}") is None:
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
    before = _want(tree, head.revision, WantedRevision.Why.HEAD, head.branch)
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


def _want(tree: Tree, revision: Revision, why: WantedRevision.Why, detail: str) -> WantedRevision | None:
    """None when it is wanted now; what wanted it before otherwise."""
    row, made = WantedRevision.objects.get_or_create(
        tree=tree, revision=revision, defaults={"why": why, "detail": detail}
    )
    return None if made else row


def _said(wanted: WantedRevision) -> str:
    return f"as {wanted.get_why_display()} ({wanted.detail})" if wanted.detail else f"as {wanted.get_why_display()}"

"""What is watched: whether trees and lists answer, and branches, their moves and what was chosen of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import OuterRef, Subquery
from django.utils.text import Truncator

from server.core import clock
from server.core.addresses import without_credentials
from server.core.rows.together import objects_together
from server.sources.models import Branch, HeadMove, MailingList, Revision, Tag, Tree, WantedRevision
from server.sources.polls import is_late, next_try

# Errors of git are a line or two; a hostile remote may say more.
_LONGEST_ERROR = 600


@dataclass(frozen=True, slots=True)
class Watcher:
    """A polled tree or list; one without `url` is never polled."""

    id: int
    kind: str
    name: str
    url: str
    enabled: bool
    polled_at: datetime | None
    fetched_at: datetime | None
    failing_since: datetime | None
    failures: int
    error: str
    next_try: datetime | None
    late: bool

    @property
    def alarming(self) -> bool:
        return self.enabled and bool(self.failing_since or self.late)


def watchers() -> tuple[Watcher, ...]:
    """One query."""
    now = clock.now()
    trees, lists = objects_together(Tree.objects.all(), MailingList.objects.all())
    return (*(watcher("tree", tree, now) for tree in trees), *(watcher("list", row, now) for row in lists))


def watcher(kind: str, row: Tree | MailingList, now: datetime) -> Watcher:
    return Watcher(
        id=row.pk,
        kind=kind,
        name=row.name,
        url=without_credentials(row.url),
        enabled=row.enabled,
        polled_at=row.polled_at,
        fetched_at=row.fetched_at,
        failing_since=row.failing_since,
        failures=row.failures,
        error=Truncator(without_credentials(row.last_error)).chars(_LONGEST_ERROR),
        next_try=next_try(row) if row.enabled and row.url else None,
        late=is_late(row, now),
    )


@dataclass(frozen=True, slots=True)
class CommitLine:
    sha: str
    subject: str
    tree: str


@dataclass(frozen=True, slots=True)
class BranchRow:
    """Where a branch stands, with the kind and decision of its last move; both are empty before the first one."""

    name: str
    head: CommitLine | None
    head_at: datetime | None
    deleted_at: datetime | None
    moved: str
    moved_label: str
    decision: str


@dataclass(frozen=True, slots=True)
class MoveRow:
    tree: str
    branch: str
    kind: str
    label: str
    before: CommitLine | None
    after: CommitLine | None
    decision: str
    at: datetime


@dataclass(frozen=True, slots=True)
class WantedRow:
    commit: CommitLine
    why: str
    detail: str
    at: datetime


@dataclass(frozen=True, slots=True)
class TagRow:
    name: str
    commit: CommitLine
    at: datetime


def commit(revision: Revision | None) -> CommitLine | None:
    """For a revision read with its tree."""
    return _commit(revision) if revision else None


def branch_rows(branches: Sequence[Branch]) -> tuple[BranchRow, ...]:
    """For branches read with head and tree; one query more, for their last moves."""
    # For each branch its own look into the index: one over all of them would read every move that they ever made.
    newest = HeadMove.objects.filter(branch=OuterRef("pk")).order_by("-id").values("pk")[:1]
    asked = Branch.objects.filter(pk__in=[branch.pk for branch in branches]).order_by()
    moves = HeadMove.objects.filter(pk__in=asked.annotate(newest=Subquery(newest)).values("newest"))
    last = {move.branch_id: move for move in moves}
    return tuple(_branch(branch, last.get(branch.pk)) for branch in branches)


def _branch(branch: Branch, move: HeadMove | None) -> BranchRow:
    return BranchRow(
        name=branch.name,
        head=CommitLine(branch.head.sha, branch.head.subject, branch.tree.name) if branch.head else None,
        head_at=branch.head_at,
        deleted_at=branch.deleted_at,
        moved=move.kind if move else "",
        moved_label=HeadMove.Kind(move.kind).label if move else "",
        decision=move.decision if move else "",
    )


def move_rows(moves: Iterable[HeadMove]) -> tuple[MoveRow, ...]:
    """For moves read with `MOVE_PARTS`."""
    return tuple(
        MoveRow(
            tree=move.branch.tree.name,
            branch=move.branch.name,
            kind=move.kind,
            label=HeadMove.Kind(move.kind).label,
            before=commit(move.before),
            after=commit(move.after),
            decision=move.decision,
            at=move.at,
        )
        for move in moves
    )


MOVE_PARTS = ("branch__tree", "before__tree", "after__tree")


def wanted_rows(wanted: Iterable[WantedRevision]) -> tuple[WantedRow, ...]:
    """For rows read with `revision__tree`."""
    return tuple(
        WantedRow(_commit(row.revision), WantedRevision.Why(row.why).label, row.detail, row.created_at)
        for row in wanted
    )


def tag_rows(tags: Iterable[Tag]) -> tuple[TagRow, ...]:
    """For tags read with `revision__tree`."""
    return tuple(TagRow(tag.name, _commit(tag.revision), tag.seen_at) for tag in tags)


def _commit(revision: Revision) -> CommitLine:
    return CommitLine(revision.sha, revision.subject, revision.tree.name)

"""Which branches have timelines: the newest judged head of each, and the one that a page is about."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Count, OuterRef, Subquery
from django.db.models.functions import Coalesce

from server.core import clock
from server.detection.models import FleetState, MeasuredHead

# What "lately" means on pages of trees.
LATELY = timedelta(days=7)
# More of them stand on the pages of their trees.
_MOST = 200


@dataclass(frozen=True, slots=True)
class MeasuredBranch:
    """A branch, the reference that its heads are measured against now, and the newest of them that was judged."""

    id: int
    tree: str
    name: str
    virtual: bool
    deleted_at: datetime | None
    reference_id: int
    reference_sha: str
    reference_subject: str
    heads: int
    lately: int
    place: int
    sha: str
    subject: str
    author: str
    committed_at: datetime
    judged_at: datetime

    @property
    def key(self) -> str:
        """As the choice of pages names it; no tree has a slash."""
        return f"{self.tree}/{self.name}"


def measured_branches(**narrowed: str | int) -> tuple[MeasuredBranch, ...]:
    """Branches with judged heads, the one that was judged last first. One query.

    Of several references the one that was measured last, of virtual machines only where there is no physical one.
    `narrowed` are conditions on a branch, as `branch__tree__name`.
    """
    own = MeasuredHead.objects.filter(fleet=OuterRef("pk")).order_by("-place")
    newest = FleetState.objects.filter(observed__gt=0, **narrowed).annotate(newest=Subquery(own.values("pk")[:1]))
    since = clock.now() - LATELY
    judged = MeasuredHead.objects.filter(fleet=OuterRef("fleet"), observed_at__gte=since).order_by().values("fleet")
    rows = (
        MeasuredHead.objects.filter(pk__in=newest.order_by("-pk").values("newest")[:_MOST])
        .select_related("branch__tree", "fleet", "revision", "reference")
        .annotate(lately=Coalesce(Subquery(judged.annotate(count=Count("pk")).values("count")), 0))
    )
    found: dict[int, MeasuredBranch] = {}
    for row in sorted(rows, key=lambda one: (_is_virtual(one), -_judged_at(one).timestamp())):
        found.setdefault(row.branch_id, _branch(row, row.lately))
    return tuple(sorted(found.values(), key=lambda one: one.judged_at, reverse=True))


def _is_virtual(head: MeasuredHead) -> bool:
    return head.fleet is not None and head.fleet.virtual


def _judged_at(head: MeasuredHead) -> datetime:
    return head.observed_at or head.created_at


def _branch(head: MeasuredHead, lately: int) -> MeasuredBranch:
    return MeasuredBranch(
        id=head.branch_id,
        tree=head.branch.tree.name,
        name=head.branch.name,
        virtual=_is_virtual(head),
        deleted_at=head.branch.deleted_at,
        reference_id=head.reference_id,
        reference_sha=head.reference.sha,
        reference_subject=head.reference.subject,
        heads=head.fleet.observed if head.fleet is not None else 0,
        lately=lately,
        place=head.place,
        sha=head.revision.sha,
        subject=head.revision.subject,
        author=head.revision.author,
        committed_at=head.revision.committed_at,
        judged_at=_judged_at(head),
    )


@dataclass(frozen=True, slots=True)
class ChosenBranch:
    """The branch that a page shows; `problem` says which name in the address is unknown."""

    shown: MeasuredBranch | None
    branches: tuple[MeasuredBranch, ...]
    problem: str = ""


def chosen(branches: Sequence[MeasuredBranch], asked: Mapping[str, str]) -> ChosenBranch:
    """By `tree` and `branch` of an address; `tree` may name both, with a slash between."""
    tree, _, name = asked.get("tree", "").partition("/")
    name = asked.get("branch", "") or name
    fit = [one for one in branches if tree in ("", one.tree) and name in ("", one.name)]
    if fit or not branches:
        return ChosenBranch(fit[0] if fit else None, tuple(branches))
    wanted = "/".join(part for part in (tree, name) if part)
    problem = f"No branch {wanted} has judged heads here; shown is {branches[0].key}."
    return ChosenBranch(branches[0], tuple(branches), problem)

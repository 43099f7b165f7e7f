"""All watched trees: where each stands, and what is open in it."""

from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.db.models import Count, Prefetch
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from server.core import clock
from server.detection.findings.filters import is_open
from server.detection.models import Finding
from server.sources.models import Branch, Tree


@dataclass(frozen=True, slots=True)
class BranchHead:
    name: str
    sha: str
    subject: str
    at: datetime | None
    is_deleted: bool
    open_findings: int


@dataclass(frozen=True, slots=True)
class WatchedTree:
    name: str
    heads: tuple[BranchHead, ...]


@require_safe
def trees(request: HttpRequest) -> HttpResponse:
    context = {"now": clock.now(), "trees": watched_trees()}
    return render(request, "dashboard/trees.html", context)


def watched_trees() -> tuple[WatchedTree, ...]:
    """Three queries."""
    counts = _open()
    branches = Prefetch("branches", Branch.objects.select_related("head").order_by("deleted_at", "name"))
    return tuple(
        WatchedTree(tree.name, tuple(_head(branch, counts.get(branch.pk, 0)) for branch in tree.branches.all()))
        for tree in Tree.objects.order_by("name").prefetch_related(branches)
    )


def _open() -> dict[int, int]:
    """Of branches: how many findings in each wait for somebody."""
    rows = Finding.objects.filter(is_open(), branch__isnull=False)
    if not settings.VIRTUAL_VERDICTS:
        rows = rows.filter(virtual=False)
    return dict(rows.order_by().values_list("branch_id").annotate(Count("pk")))


def _head(branch: Branch, open_findings: int) -> BranchHead:
    return BranchHead(
        name=branch.name,
        sha=branch.head.sha if branch.head else "",
        subject=branch.head.subject if branch.head else "",
        at=branch.head_at,
        is_deleted=branch.deleted_at is not None,
        open_findings=open_findings,
    )

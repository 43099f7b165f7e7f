"""The list of findings, and the page of one with what it rests on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from server.core import clock
from server.core.models import Transition
from server.dashboard.rows.figures import Paged, paged
from server.dashboard.rows.host_status import AuditLine
from server.dashboard.rows.verdicts import FindingBrief, Matrix, finding_brief, verdict_matrix, with_verdicts
from server.detection.bisection.step import BisectionProgress, bisections_of
from server.detection.bisection.walk import Walk, walk_of
from server.detection.findings.table import comparison_table, sessions_of
from server.detection.findings.versions import VersionComparison, compare_versions
from server.detection.models import Finding
from server.sources.models import Revision

_PARTS = ("series", "branch__tree", "before", "after", "culprit", "fix", "previous")


@dataclass(frozen=True, slots=True)
class FindingSearch:
    state: str = ""
    kind: str = ""

    @property
    def narrows(self) -> bool:
        return bool(self.state or self.kind)


@dataclass(frozen=True, slots=True)
class FindingRow:
    """`about` is what it was found in: a series, or a branch of a tree."""

    brief: FindingBrief
    about: str
    series_id: int | None
    tree: str
    branch: str
    state_since: datetime


@dataclass(frozen=True, slots=True)
class RevisionLine:
    word: str
    sha: str
    subject: str


@dataclass(frozen=True, slots=True)
class AcceptanceRow:
    person: str
    reason: str
    what: str
    expires_at: datetime | None
    withdrawn_at: datetime | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class FindingPage:
    row: FindingRow
    trace: str
    matrix: Matrix
    revisions: tuple[RevisionLine, ...]
    explanations: Sequence[Mapping[str, Any]]
    counters: Sequence[Mapping[str, Any]]
    checks: Sequence[Mapping[str, Any]]
    gaps: Sequence[Mapping[str, Any]]
    bisections: tuple[BisectionProgress, ...]
    walk: Walk | None
    versions: VersionComparison | None
    acceptances: tuple[AcceptanceRow, ...]
    life: tuple[AuditLine, ...]


def finding_rows(findings: Sequence[Finding]) -> tuple[FindingRow, ...]:
    return tuple(_row(finding) for finding in findings)


def findings_page(wanted: FindingSearch, number: str, *, virtual: bool) -> Paged[FindingRow]:
    """One page of all findings, newest first; those of virtual machines only where the site shows them."""
    query = Finding.objects.select_related("series", "branch__tree").prefetch_related(with_verdicts())
    query = query.defer(*Finding.LONG, "series__trailers").order_by("-id")
    if not virtual:
        query = query.filter(virtual=False)
    if wanted.state:
        query = query.filter(state=wanted.state)
    if wanted.kind:
        query = query.filter(kind=wanted.kind)
    return paged(query, number, finding_rows)


def finding_page(finding_id: int) -> FindingPage | None:
    query = Finding.objects.select_related(*_PARTS).prefetch_related(with_verdicts())
    query = query.defer("series__trailers", *(f"previous__{name}" for name in Finding.LONG))
    finding = query.filter(pk=finding_id).first()
    if finding is None:
        return None
    return FindingPage(
        row=_row(finding),
        trace=finding.trace,
        matrix=verdict_matrix(comparison_table(sessions_of(finding), finding.checks)),
        revisions=_revisions(finding),
        explanations=finding.explanations,
        counters=finding.counters,
        checks=finding.checks,
        gaps=finding.gaps,
        bisections=bisections_of(finding),
        walk=walk_of(finding.series) if finding.series is not None else None,
        versions=compare_versions(finding),
        acceptances=_acceptances(finding),
        life=_life(finding),
    )


def _row(finding: Finding) -> FindingRow:
    return FindingRow(
        brief=finding_brief(finding),
        about=str(finding.series or finding.branch),
        series_id=finding.series_id,
        tree=finding.branch.tree.name if finding.branch is not None else "",
        branch=finding.branch.name if finding.branch is not None else "",
        state_since=finding.state_since,
    )


def _revisions(finding: Finding) -> tuple[RevisionLine, ...]:
    named: tuple[tuple[str, Revision | None], ...] = (
        ("made by", finding.culprit),
        ("measured without it", finding.before),
        ("measured with it", finding.after),
        ("mended by", finding.fix),
    )
    return tuple(RevisionLine(word, row.sha, row.subject) for word, row in named if row is not None)


def _acceptances(finding: Finding) -> tuple[AcceptanceRow, ...]:
    return tuple(
        AcceptanceRow(
            person=row.person,
            reason=row.reason,
            what=", ".join([row.metric.name if row.metric else "all metrics", *(row.uarchs or ["everywhere"])]),
            expires_at=row.expires_at,
            withdrawn_at=row.withdrawn_at,
            created_at=row.created_at,
        )
        for row in finding.acceptances.select_related("metric")
    )


def _life(finding: Finding) -> tuple[AuditLine, ...]:
    rows = Transition.objects.filter(subject="finding", subject_id=finding.pk).order_by("id")
    return tuple(AuditLine(row.at, row.before, row.after, row.reason, row.actor) for row in rows)


@require_safe
def findings(request: HttpRequest) -> HttpResponse:
    wanted = FindingSearch(
        state=_known(request.GET.get("state", ""), Finding.State.values),
        kind=_known(request.GET.get("kind", ""), Finding.Kind.values),
    )
    context = {
        "now": clock.now(),
        "page": findings_page(wanted, request.GET.get("page", "1"), virtual=settings.VIRTUAL_VERDICTS),
        "wanted": wanted,
        "states": Finding.State.choices,
        "kinds": Finding.Kind.values,
    }
    return render(request, "dashboard/findings.html", context)


@require_safe
def finding(request: HttpRequest, finding_id: int) -> HttpResponse:
    page = finding_page(finding_id)
    if page is None or (page.row.brief.virtual and not settings.VIRTUAL_VERDICTS):
        raise Http404(f"There is no finding {finding_id}.")
    context = {"now": clock.now(), "page": page, "finding": page.row.brief, "about": page.row}
    return render(request, "dashboard/finding.html", context)


def _known(given: str, values: list[str]) -> str:
    """A filter that names nothing known filters nothing."""
    return given if given in values else ""

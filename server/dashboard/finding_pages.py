"""The page of one finding, with what it rests on."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from server.core import clock
from server.core.reasons import Because
from server.dashboard.frame.kept_pages import kept
from server.dashboard.pictures.fingerprint import Fingerprint
from server.dashboard.pictures.written import fingerprint_csv
from server.dashboard.rows.fingerprints import fingerprint_of, image
from server.dashboard.rows.verdicts import FindingBrief, finding_brief, with_verdicts
from server.dashboard.verdicts.check_lines import check_lines, failed_checks
from server.dashboard.verdicts.commit_words import commit_words
from server.dashboard.verdicts.finding_parts import FINDING_PARTS, acceptances_of
from server.dashboard.verdicts.first_words import FirstWords, answer_of
from server.dashboard.verdicts.next_steps import run_again
from server.detection.findings.table import ComparisonTable, comparison_table, sessions_of
from server.detection.lifecycle.triage import seen_now
from server.detection.models import Finding
from server.sources.models import Revision

_PARTS = ("series", "branch__tree", "before", "after", "culprit", "fix", "previous")


@dataclass(frozen=True, slots=True)
class FindingRow:
    """`about` is what it was found in: a series, or a branch of a tree."""

    brief: FindingBrief
    about: str
    series_id: int | None
    tree: str
    branch: str
    state_since: datetime
    reason: str


@dataclass(frozen=True, slots=True)
class RevisionLine:
    word: str
    sha: str
    subject: str
    author: str


def _row(finding: Finding) -> FindingRow:
    return FindingRow(
        brief=finding_brief(finding),
        about=str(finding.series or finding.branch),
        series_id=finding.series_id,
        tree=finding.branch.tree.name if finding.branch is not None else "",
        branch=finding.branch.name if finding.branch is not None else "",
        state_since=finding.state_since,
        # What the search told is told below, commit by commit.
        reason="" if finding.reason_code == Because.SEARCHED.value else finding.reason,
    )


def _revisions(finding: Finding) -> tuple[RevisionLine, ...]:
    named: tuple[tuple[str, Revision | None], ...] = (
        ("made by", finding.culprit),
        ("measured without it", finding.before),
        ("measured with it", finding.after),
        ("mended by", finding.fix),
    )
    return tuple(RevisionLine(word, row.sha, row.subject, row.author) for word, row in named if row is not None)


def _found(finding_id: int) -> Finding:
    query = Finding.objects.select_related(*_PARTS).prefetch_related(with_verdicts())
    query = query.defer("series__trailers", *(f"previous__{name}" for name in Finding.LONG))
    finding = query.filter(pk=finding_id).first()
    if finding is None or (finding.virtual and not settings.VIRTUAL_VERDICTS):
        raise Http404(f"There is no finding {finding_id}.")
    return finding


def _shared(finding: Finding) -> dict[str, Any]:
    row = _row(finding)
    parts = [part for part in FINDING_PARTS.values() if _has(finding, part.slug)]
    return {"now": clock.now(), "finding": row.brief, "about": row, "parts": parts, "part": None}


def _has(finding: Finding, slug: str) -> bool:
    """Parts that cannot have anything to show are not offered."""
    if slug == "walk":
        return finding.series_id is not None
    return slug != "versions" or finding.previous_id is not None


@require_safe
@kept
def finding(request: HttpRequest, finding_id: int) -> HttpResponse:
    seen = seen_now(finding_id)
    found = _found(finding_id)
    table = comparison_table(sessions_of(found), found.checks)
    answer = answer_of(found, table)
    context = {
        "seen": seen,
        "answer": answer,
        "strip": answer.chips,
        "fingerprint": _fingerprint(found, table, answer),
        "again": run_again(answer.again, *_document(found)),
        "revisions": _revisions(found),
        "ends": (found.before.sha, found.after.sha) if found.before and found.after else None,
        "culprit": found.culprit,
        "bisected": commit_words(found),
        "checks": check_lines(found),
        "failed": failed_checks(found.checks),
        "gaps": found.gaps,
        "acceptances": acceptances_of(found),
    }
    return render(request, "dashboard/finding.html", _shared(found) | context)


def _fingerprint(found: Finding, table: ComparisonTable, answer: FirstWords) -> Fingerprint:
    return fingerprint_of(
        table,
        gaps=found.gaps,
        verdicts={chip.uarch: chip.verdict for chip in answer.chips},
        href=lambda cell: f"{reverse('finding-part', args=[found.pk, 'figures'])}#cell-{cell.pk}",
    )


@require_safe
@never_cache
@kept
def finding_image(_request: HttpRequest, finding_id: int) -> HttpResponse:
    return image(_drawn(finding_id))


@require_safe
@never_cache
@kept
def finding_table(_request: HttpRequest, finding_id: int) -> HttpResponse:
    return fingerprint_csv(_drawn(finding_id), f"finding-{finding_id}-fingerprint")


def _drawn(finding_id: int) -> Fingerprint:
    found = _found(finding_id)
    table = comparison_table(sessions_of(found), found.checks)
    return _fingerprint(found, table, answer_of(found, table))


def _document(finding: Finding) -> tuple[str, int]:
    return ("api-finding-case", finding.pk) if finding.series_id is None else ("api-series-case", finding.series_id)


@require_safe
@kept
def finding_part(request: HttpRequest, finding_id: int, part: str) -> HttpResponse:
    """One part of the page, under the head that all share."""
    found = _found(finding_id)
    chosen = FINDING_PARTS.get(part)
    if chosen is None:
        raise Http404(f"A finding has no part {part[:40]!r}; it has {', '.join(FINDING_PARTS)}.")
    table = comparison_table(sessions_of(found), found.checks)
    answer = answer_of(found, table)
    context = _shared(found) | {"part": chosen, "answer": answer, "strip": answer.chips}
    return render(request, "dashboard/finding_part.html", context | chosen.read(found, table))

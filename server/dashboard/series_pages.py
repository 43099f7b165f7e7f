"""The list of series, the page of one, and the approval of one that is held."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, Literal

from django import forms
from django.conf import settings
from django.contrib.auth.views import redirect_to_login
from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import Count, OuterRef, Subquery
from django.db.models.functions import Coalesce
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from server.core import clock
from server.core.errors import DomainError
from server.dashboard.frame.access import needs
from server.dashboard.frame.kept_pages import kept
from server.dashboard.pictures.fingerprint import Fingerprint
from server.dashboard.pictures.written import fingerprint_csv
from server.dashboard.rows.figures import Paged, paged
from server.dashboard.rows.fingerprints import fingerprint_of, image
from server.dashboard.rows.postings import (
    PERMISSION,
    Approval,
    OlderVersions,
    OtherVersion,
    approval_of,
    archive_link,
    label_of,
    marks_of,
    newer_and_older,
    patches_of,
    shown_trailers,
)
from server.dashboard.rows.verdicts import FindingBrief, briefs_by_series, finding_brief, with_verdicts
from server.dashboard.verdicts.check_lines import failed_checks
from server.dashboard.verdicts.commit_words import commit_words
from server.dashboard.verdicts.coverage import not_measured
from server.dashboard.verdicts.first_words import FirstWords, answer_of
from server.dashboard.verdicts.next_steps import run_again, way_of
from server.dashboard.verdicts.series_parts import PARTS
from server.detection.findings.table import ComparisonTable, comparison_table
from server.detection.models import Finding
from server.lab.models import Session
from server.sources.models import MailingList, Patch, Series
from server.sources.series.requests import approve_series, holding, not_held


@dataclass(frozen=True, slots=True)
class SeriesListed:
    id: int
    subject: str
    mark: str
    total: int
    author: str
    mailing_list: str
    submitted_at: datetime
    state: str
    state_label: str
    state_since: datetime
    reason: str
    marks: tuple[str, ...]
    uncertain: bool
    finding: FindingBrief | None


@dataclass(frozen=True, slots=True)
class SeriesSearch:
    state: str = ""
    mailing_list: str = ""
    mail: str = ""

    @property
    def narrows(self) -> bool:
        return bool(self.state or self.mailing_list or self.mail)


def series_page(wanted: SeriesSearch, number: str) -> Paged[SeriesListed]:
    """One page of all series, newest first."""
    query = Series.shown().select_related("mailing_list").defer("trailers")
    if wanted.state:
        query = query.filter(state=wanted.state)
    if wanted.mailing_list:
        query = query.filter(mailing_list__name=wanted.mailing_list)
    if wanted.mail:
        query = query.filter(pk__in=holding(wanted.mail).values("pk"))
    return paged(query, number, series_rows)


def list_names() -> tuple[str, ...]:
    return tuple(MailingList.shown().values_list("name", flat=True))


def _verdict(brief: FindingBrief | None) -> str:
    return "" if brief is None or brief.state == "invalid" else brief.kind


def series_rows(found: Sequence[Series]) -> tuple[SeriesListed, ...]:
    """Rows for series read with their mailing list; two queries more, however many rows."""
    briefs = briefs_by_series([row.pk for row in found])
    return tuple(
        SeriesListed(
            id=row.pk,
            subject=row.subject,
            mark=row.mark,
            total=row.total,
            author=row.author_name or row.author_address,
            mailing_list=row.mailing_list.name,
            submitted_at=row.submitted_at,
            state=row.state,
            state_label=label_of(row, _verdict(briefs.get(row.pk))),
            state_since=row.state_since,
            reason=row.reason,
            marks=marks_of(row),
            uncertain=row.base_certain is False,
            finding=briefs.get(row.pk),
        )
        for row in found
    )


@dataclass(frozen=True, slots=True)
class SeriesHead:
    """What stands above every part of the page."""

    id: int
    subject: str
    mark: str
    total: int
    # Of these; fewer where some never came.
    arrived: int
    author_name: str
    author_address: str
    mailing_list: str
    message_id: str
    link: str
    submitted_at: datetime
    state: str
    state_label: str
    state_since: datetime
    reason: str
    marks: tuple[str, ...]
    # What told the base, where nothing in the mails did.
    base_doubt: str
    newer: OtherVersion | None
    older: OlderVersions
    checked: bool
    approval: Approval | None
    finding: FindingBrief | None
    virtual: Literal["", "some", "all"]
    canary: bool

    @property
    def stored_only(self) -> bool:
        """Nothing here will be judged: this site keeps what virtual machines measure, and no more."""
        return self.finding is None and self.virtual == "all" and not settings.VIRTUAL_VERDICTS


def series_head(series: Series, finding: Finding | None) -> SeriesHead:
    """Two queries; more where a person may approve it."""
    approval = approval_of(series)
    newer, older = newer_and_older(series)
    return SeriesHead(
        id=series.pk,
        subject=series.subject,
        mark=series.mark,
        total=series.total,
        arrived=getattr(series, "arrived", series.total),
        author_name=series.author_name,
        author_address=series.author_address,
        mailing_list=series.mailing_list.name,
        message_id=series.first_message_id,
        link=archive_link(series.mailing_list.url, series.first_message_id),
        submitted_at=series.submitted_at,
        state=series.state,
        state_label=label_of(series, "" if finding is None or finding.state == "invalid" else finding.kind),
        state_since=series.state_since,
        reason=series.reason,
        marks=marks_of(series),
        base_doubt=(series.base_how or "not noted") if series.base_certain is False else "",
        newer=newer,
        older=older,
        checked=series.checked_at is not None,
        approval=approval,
        finding=finding_brief(finding) if finding else None,
        virtual=_virtual(series, finding),
        canary=series.canary,
    )


def _virtual(series: Series, finding: Finding | None) -> Literal["", "some", "all"]:
    """Whether the page shows virtual results: all of them, or some beside physical ones, which alone are judged."""
    if finding is not None and finding.virtual:
        return "all"
    marks: list[bool] = getattr(series, "virtual_marks", [])
    return "all" if marks and all(marks) else "some" if any(marks) else ""


_RELATED = ("mailing_list", "base__tree", "head__tree", "superseded_by")


def _found(series_id: int) -> tuple[Series, Finding | None]:
    patches = Patch.objects.filter(series=OuterRef("pk")).order_by().values("series")
    arrived = Coalesce(Subquery(patches.annotate(count=Count("pk")).values("count")), 0)
    marks = ArraySubquery(Session.objects.filter(series=OuterRef("pk")).order_by().values("machine__virtual"))
    rows = Series.objects.select_related(*_RELATED).annotate(arrived=arrived, virtual_marks=marks)
    series = rows.filter(pk=series_id).first()
    if series is None:
        raise Http404(f"There is no series {series_id}.")
    finding = Finding.objects.filter(series=series).select_related("report__delivery", "culprit")
    return series, finding.prefetch_related(with_verdicts()).defer("report__body").first()


_CONFLICT = 409


class ApprovalForm(forms.Form):
    reason = forms.CharField(max_length=500, strip=True, error_messages={"required": "Say why it may run."})
    # What the page showed whose form this is.
    seen = forms.CharField(max_length=64, error_messages={"required": "Approve it on its page."})


@require_safe
@kept
def series(request: HttpRequest, series_id: int) -> HttpResponse:
    return _series(request, series_id)


@require_POST
def approve(request: HttpRequest, series_id: int) -> HttpResponse:
    """A person with the right lets a held series run; the reason becomes part of its history."""
    if not request.user.is_authenticated:
        return redirect_to_login(reverse("series", args=[series_id]), reverse("login"))
    return _approve(request, series_id)


@needs(PERMISSION)
def _approve(request: HttpRequest, series_id: int) -> HttpResponse:
    row = get_object_or_404(Series, pk=series_id)
    form = ApprovalForm(request.POST)
    if not form.is_valid():
        said = [str(problem) for problems in form.errors.values() for problem in problems]
        return _series(request, series_id, problem=" ".join(said), status=400)
    try:
        reason = f"approved by {request.user}: {form.cleaned_data['reason']}"
        actor = request.user.get_username()
        if not approve_series(series=row, reason=reason, seen=form.cleaned_data["seen"], actor=actor):
            raise not_held(row)
    except DomainError as error:
        return _series(request, series_id, problem=error.message, status=_CONFLICT)
    return redirect("series", series_id=series_id)


@require_safe
@kept
def series_part(request: HttpRequest, series_id: int, part: str) -> HttpResponse:
    """One part of the page, under the head that all share."""
    row, finding = _found(series_id)
    chosen = PARTS.get(part)
    if chosen is None:
        raise Http404(f"A series has no part {part[:40]!r}; it has {', '.join(PARTS)}.")
    table = cache(lambda: comparison_table(row.sessions.all(), finding.checks if finding else ()))
    context = _shared(row, finding) | {"part": chosen}
    if finding is not None:
        # The same words as on the first page: a chip that knows no cells would say something else.
        answer = answer_of(finding, table())
        context |= {"strip": answer.chips, "kind": answer.kind}
    return render(request, "dashboard/series_part.html", context | chosen.read(row, finding, table))


def _shared(row: Series, finding: Finding | None) -> dict[str, Any]:
    return {"now": clock.now(), "series": series_head(row, finding), "parts": PARTS.values(), "part": None}


def _series(request: HttpRequest, series_id: int, *, problem: str = "", status: int = 200) -> HttpResponse:
    row, finding = _found(series_id)
    way = way_of(row, finding)
    context = _shared(row, finding) | {"problem": problem, "way": way}
    context["reason"] = "" if row.reason and row.reason in way.text else row.reason
    if context["series"].approval is not None:
        # Whoever approves sees what it is of; its mark was taken before these are read.
        context |= {"patches": patches_of(row), "trailers": shown_trailers(row)}
    if finding is not None:
        table = comparison_table(row.sessions.all(), finding.checks)
        answer = answer_of(finding, table)
        context |= {
            "answer": answer,
            "strip": answer.chips,
            "failed": failed_checks(finding.checks),
            "fingerprint": _fingerprint(finding, table, answer),
            "again": run_again(answer.again, "api-series-case", row.pk),
            "gaps": finding.gaps,
            "not_measured": not_measured(table),
            "culprit": commit_words(finding),
            "finding_culprit": finding.culprit,
        }
    return render(request, "dashboard/series.html", context, status=status)


def _fingerprint(finding: Finding, table: ComparisonTable, answer: FirstWords) -> Fingerprint:
    return fingerprint_of(
        table,
        gaps=finding.gaps,
        verdicts={chip.uarch: chip.verdict for chip in answer.chips},
        href=lambda cell: f"{reverse('series-part', args=[finding.series_id, 'figures'])}#cell-{cell.pk}",
    )


@require_safe
@never_cache
@kept
def series_image(_request: HttpRequest, series_id: int) -> HttpResponse:
    return image(_drawn(series_id))


@require_safe
@never_cache
@kept
def series_table(_request: HttpRequest, series_id: int) -> HttpResponse:
    return fingerprint_csv(_drawn(series_id), f"series-{series_id}-fingerprint")


def _drawn(series_id: int) -> Fingerprint:
    row, finding = _found(series_id)
    if finding is None:
        raise Http404(f"Series {series_id} is not judged yet.")
    table = comparison_table(row.sessions.all(), finding.checks)
    return _fingerprint(finding, table, answer_of(finding, table))

"""The list of series, the page of one, and the approval of one that is held."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from django import forms
from django.conf import settings
from django.contrib.auth.decorators import permission_required
from django.contrib.auth.views import redirect_to_login
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from server.builds.models import Build
from server.core import clock
from server.core.errors import DomainError
from server.dashboard.rows import charts
from server.dashboard.rows.figures import Paged, paged
from server.dashboard.rows.host_status import SessionRow, session_rows
from server.dashboard.rows.postings import PERMISSION, PostingFacts, archive_link, label_of, marks_of, posting_of
from server.dashboard.rows.verdicts import (
    FindingBrief,
    Matrix,
    briefs_by_series,
    finding_brief,
    verdict_matrix,
    with_verdicts,
)
from server.dashboard.rows.work import History, blame_sentences, history
from server.detection.findings.table import comparison_table
from server.detection.models import Finding
from server.lab.models import Session
from server.reports.evidence import culprit_sentence, walk_sentences
from server.reports.models import Delivery, Report
from server.reports.progress import SeriesProgress, series_history, series_progress
from server.sources.models import MailingList, Series
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
    query = Series.objects.select_related("mailing_list").defer("trailers")
    if wanted.state:
        query = query.filter(state=wanted.state)
    if wanted.mailing_list:
        query = query.filter(mailing_list__name=wanted.mailing_list)
    if wanted.mail:
        query = query.filter(pk__in=holding(wanted.mail).values("pk"))
    return paged(query, number, series_rows)


def list_names() -> tuple[str, ...]:
    return tuple(MailingList.objects.values_list("name", flat=True))


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
            state_label=label_of(row),
            state_since=row.state_since,
            reason=row.reason,
            marks=marks_of(row),
            uncertain=row.base_certain is False,
            finding=briefs.get(row.pk),
        )
        for row in found
    )


_LOG_TAILS = 20


@dataclass(frozen=True, slots=True)
class BuildRow:
    id: int
    arm: str
    sha: str
    config: str
    toolchain: str
    compiler: str
    arch: str
    state: str
    state_label: str
    reason: str
    state_since: datetime
    build_id: str
    seconds: float | None
    first_error: str
    log_tail: str


@dataclass(frozen=True, slots=True)
class Mail:
    subject: str
    body: str
    to: tuple[str, ...]
    cc: tuple[str, ...]
    in_reply_to: str
    report_state: str
    report_label: str
    report_reason: str
    message_id: str
    delivery_state: str
    delivery_label: str
    delivery_reason: str
    tries: int
    sent_at: datetime | None


@dataclass(frozen=True, slots=True)
class SeriesFacts:
    id: int
    subject: str
    mark: str
    total: int
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
    trace: str
    posting: PostingFacts
    builds: tuple[BuildRow, ...]
    blame: tuple[str, ...]
    sessions: tuple[SessionRow, ...]
    finding: FindingBrief | None
    gaps: Sequence[Mapping[str, str]]
    mail: Mail | None
    # Which patch made it, and what each of them adds.
    culprit: str
    walk: tuple[str, ...]
    matrix: Matrix
    progress: SeriesProgress
    history: History

    @property
    def stored_only(self) -> bool:
        """Nothing here will be judged: this site keeps what virtual machines measure, and no more."""
        return self.finding is None and self.virtual == "all" and not settings.VIRTUAL_VERDICTS

    @property
    def reason_warned(self) -> bool:
        """Whether the warning above the stages has the reason of the state already."""
        return self.progress.state in {"failed", "held"} and self.reason in self.progress.reason

    @property
    def virtual(self) -> Literal["", "some", "all"]:
        """Whether the page shows virtual results: all of them, or some beside physical ones, which alone are judged."""
        if self.finding is not None and self.finding.virtual:
            return "all"
        marks = [row.virtual for row in self.sessions]
        return "all" if marks and all(marks) else "some" if any(marks) else ""


def series_facts(series_id: int) -> SeriesFacts | None:
    related = ("mailing_list", "base__tree", "head__tree", "superseded_by")
    series = Series.objects.select_related(*related).filter(pk=series_id).first()
    if series is None:
        return None
    builds = _builds(series)
    finding = Finding.objects.filter(series=series).prefetch_related(with_verdicts()).first()
    return SeriesFacts(
        id=series.pk,
        subject=series.subject,
        mark=series.mark,
        total=series.total,
        author_name=series.author_name,
        author_address=series.author_address,
        mailing_list=series.mailing_list.name,
        message_id=series.first_message_id,
        link=archive_link(series.mailing_list.url, series.first_message_id),
        submitted_at=series.submitted_at,
        state=series.state,
        state_label=label_of(series),
        state_since=series.state_since,
        reason=series.reason,
        trace=series.trace,
        posting=posting_of(series),
        builds=_build_rows(series, builds),
        blame=blame_sentences(series, builds),
        sessions=session_rows(Q(series=series)),
        finding=finding_brief(finding) if finding else None,
        gaps=finding.gaps if finding else (),
        mail=_mail(finding) if finding else None,
        culprit=culprit_sentence(finding) if finding else "",
        walk=walk_sentences(series) if finding else (),
        matrix=verdict_matrix(
            comparison_table(Session.objects.filter(series=series), finding.checks if finding else ())
        ),
        progress=series_progress(series),
        history=history(series_history(series), fold=True),
    )


def _builds(series: Series) -> list[Build]:
    """Builds of the base and of the last patch; same content is the same kernel, whoever wanted it first."""
    if series.base is None or series.head is None:
        return []
    content = {series.base.tree_sha, series.head.tree_sha}
    builds = Build.objects.filter(tree_sha__in=content).select_related("config", "toolchain").order_by("id")
    return list(builds.defer("log_tail", "config__fragment"))


def _log_tails(builds: Sequence[Build]) -> dict[int, str]:
    """Of those that failed without an error that was found: the page shows no others."""
    silent = [row.pk for row in builds if row.state == Build.State.FAILED and not row.first_error]
    return dict(Build.objects.filter(pk__in=silent[:_LOG_TAILS]).values_list("pk", "log_tail")) if silent else {}


def _build_rows(series: Series, builds: Sequence[Build]) -> tuple[BuildRow, ...]:
    if series.base is None or series.head is None:
        return ()
    arms = {series.head.tree_sha: "patched", series.base.tree_sha: "base"}
    identical = len(arms) == 1
    tails = _log_tails(builds)
    return tuple(
        BuildRow(
            id=row.pk,
            arm="base = patched" if identical else arms[row.tree_sha],
            sha=series.base.sha if row.tree_sha == series.base.tree_sha else series.head.sha,
            config=row.config.name,
            toolchain=row.toolchain.name,
            compiler=row.compiler_version,
            arch=row.arch,
            state=row.state,
            state_label=Build.State(row.state).label,
            reason=row.reason,
            state_since=row.state_since,
            build_id=row.build_id,
            seconds=row.seconds,
            first_error=row.first_error if row.state == Build.State.FAILED else "",
            log_tail=tails.get(row.pk, ""),
        )
        for row in builds
    )


def _mail(finding: Finding) -> Mail | None:
    report = Report.objects.filter(finding=finding).select_related("delivery").first()
    if report is None:
        return None
    delivery: Delivery | None = getattr(report, "delivery", None)
    return Mail(
        subject=report.subject,
        body=report.body,
        to=tuple(report.to),
        cc=tuple(report.cc),
        in_reply_to=report.in_reply_to,
        report_state=report.state,
        report_label=Report.State(report.state).label,
        report_reason=report.reason,
        message_id=delivery.message_id if delivery else "",
        delivery_state=delivery.state if delivery else "",
        delivery_label=Delivery.State(delivery.state).label if delivery else "",
        delivery_reason=delivery.reason if delivery else "",
        tries=delivery.tries if delivery else 0,
        sent_at=delivery.sent_at if delivery else None,
    )


_CONFLICT = 409


class ApprovalForm(forms.Form):
    reason = forms.CharField(max_length=500, strip=True, error_messages={"required": "Say why it may run."})
    # What the page showed whose form this is.
    seen = forms.CharField(max_length=64, error_messages={"required": "Approve it on its page."})


@require_safe
def series(request: HttpRequest, series_id: int) -> HttpResponse:
    return _series(request, series_id)


@require_POST
def approve(request: HttpRequest, series_id: int) -> HttpResponse:
    """A person with the right lets a held series run; the reason becomes part of its history."""
    if not request.user.is_authenticated:
        return redirect_to_login(reverse("series", args=[series_id]), reverse("admin:login"))
    return _approve(request, series_id)


@permission_required(PERMISSION, raise_exception=True)
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


def _series(request: HttpRequest, series_id: int, *, problem: str = "", status: int = 200) -> HttpResponse:
    facts = series_facts(series_id)
    if facts is None:
        raise Http404(f"There is no series {series_id}.")
    # Cases that moved stand first in the table, so a long page keeps their charts.
    cases = list(dict.fromkeys((row.case.benchmark, row.case.case) for row in facts.matrix.rows))
    drawing = charts.charts({row.id: row.boots for row in facts.sessions}, cases[: charts.MOST_CASES])
    shown = charts.by_case(drawing.charts, cases)
    context = {
        "now": clock.now(),
        "series": facts,
        "problem": problem,
        "cases": shown,
        # One machine leaves room for several cases in a row.
        "single": all(len(case.charts) == 1 for case in shown),
        "undrawn": len(cases[charts.MOST_CASES :]),
        "drawing": drawing,
        "chart_data": [chart.data() for chart in drawing.charts],
    }
    return render(request, "dashboard/series.html", context, status=status)

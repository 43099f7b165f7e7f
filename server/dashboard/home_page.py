"""The home page: what was found, what is under way, and what waits."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from server.builds.models import Build
from server.core import clock
from server.core.states import Stateful
from server.dashboard import series_pages, session_page
from server.dashboard.rows import charts, host_status, verdicts
from server.dashboard.rows.watchers import watchers
from server.dashboard.series_pages import SeriesListed, series_rows
from server.detection.findings.table import session_cells
from server.lab.models import Boot, Session, Trial
from server.lab.port import dispatcher
from server.reports.models import Delivery, Report
from server.reports.progress import series_progress_many
from server.sources.models import Series

_SHOWN = 20
_FAILURE_STAYS = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class FlightRow:
    """One series without a finding, and how far it came."""

    series: SeriesListed
    state: str
    stage: str
    detail: str


@dataclass(frozen=True, slots=True)
class Load:
    """One line of the counters: how many rows of a kind are in which unfinished state."""

    kind: str
    counts: tuple[tuple[str, int], ...]


def latest_findings() -> tuple[SeriesListed, ...]:
    query = (
        Series.objects.filter(finding__isnull=False)
        .order_by("-finding__id")
        .select_related("mailing_list")
        .defer("trailers")
    )
    return series_rows(list(query[:_SHOWN]))


def series_in_flight() -> tuple[FlightRow, ...]:
    """Series without a finding that are not over: those at work before those that wait, the last moved first.

    Those that failed stay for some days.
    """
    recently = clock.now() - _FAILURE_STAYS
    # Hundreds of held series must not hide the one that is being built.
    waiting = Q(state__in=[Series.State.INCOMPLETE, Series.State.HELD], finding=None)
    query = Series.objects.order_by("-state_since", "-id").select_related("mailing_list").defer("trailers")
    series = [*query.filter(pk__in=_at_work(recently))[: 2 * _SHOWN], *query.filter(waiting)[:_SHOWN]]
    rows = (
        FlightRow(row, progress.state, progress.current.name, progress.current.detail or progress.reason)
        for row, progress in zip(series_rows(series), series_progress_many(series), strict=True)
        if progress.state != "failed" or row.state_since >= recently
    )
    return tuple(rows)[:_SHOWN]


def _at_work(recently: datetime) -> "QuerySet[Any, Any]":
    """Ids of series without a finding that are on their way, or came to an end since then.

    Each part by an index of its own: asked at once for all that are applied and have no finding, PostgreSQL would read
    every series. What was measured and is never judged leaves as what failed does.
    """
    unfound = Series.objects.filter(finding=None).order_by()
    applied = unfound.filter(state=Series.State.APPLIED)
    trials = Trial.objects.filter(purpose=Trial.Purpose.SERIES).order_by()
    parts = (
        unfound.filter(state=Series.State.READY).values("pk"),
        Series.objects.filter(state=Series.State.REFUSED, state_since__gte=recently).order_by().values("pk"),
        applied.filter(state_since__gte=recently).values("pk"),
        applied.filter(trials__in=trials.filter(state__in=[Trial.State.WANTED, Trial.State.MEASURING])).values("pk"),
        applied.filter(trials__in=trials.filter(state__in=Trial.FINAL, answered_at=None)).values("pk"),
        applied.filter(sessions__in=Session.objects.filter(state__in=Session.OPEN).order_by()).values("pk"),
    )
    return parts[0].union(*parts[1:])


def load() -> tuple[Load, ...]:
    """What waits and what runs, by kind of row."""
    return (
        _load("series", Series, [Series.State.INCOMPLETE, Series.State.HELD, Series.State.READY]),
        _load("builds", Build, [Build.State.WANTED, Build.State.DISPATCHED, Build.State.RUNNING]),
        _load("sessions", Session, [Session.State.PLANNED, Session.State.DISPATCHED, Session.State.RUNNING]),
        _load("boots", Boot, [Boot.State.RUNNING]),
        _load("reports", Report, [Report.State.DRAFT, Report.State.APPROVED]),
        _load("mails", Delivery, [Delivery.State.QUEUED, Delivery.State.SENDING, Delivery.State.FAILED]),
    )


def _load(kind: str, model: type[Stateful], states: Iterable[str]) -> Load:
    wanted = list(states)
    query = model._default_manager.filter(state__in=wanted).order_by()
    counts = Counter(dict(query.values_list("state").annotate(Count("id"))))
    return Load(kind, tuple((state, counts[state]) for state in wanted))


_LONGEST_MESSAGE_ID = 500
_LONGEST_NUMBER = 10


@require_safe
def home(request: HttpRequest) -> HttpResponse:
    watched = watchers()
    now = clock.now()
    context = {
        "now": now,
        "dispatch_alarms": dispatcher().alarms(now),
        "findings": latest_findings(),
        "in_flight": series_in_flight(),
        "watchers": watched,
        "alarms": [watcher for watcher in watched if watcher.alarming],
        "machines": host_status.machine_rows(),
        "load": load(),
    }
    return render(request, "dashboard/home.html", context)


@require_safe
def series_list(request: HttpRequest) -> HttpResponse:
    names = series_pages.list_names()
    wanted = series_pages.SeriesSearch(
        state=_known(request.GET.get("state", ""), Series.State.values),
        mailing_list=_known(request.GET.get("list", ""), names),
        mail=request.GET.get("mail", "").replace("\0", "")[:_LONGEST_MESSAGE_ID],
    )
    context = {
        "now": clock.now(),
        "page": series_pages.series_page(wanted, request.GET.get("page", "1")),
        "wanted": wanted,
        "states": Series.State.choices,
        "lists": names,
    }
    return render(request, "dashboard/series_list.html", context)


@require_safe
def session(request: HttpRequest, session_id: int) -> HttpResponse:
    facts = session_page.session_facts(session_id, logs=request.user.is_staff)
    if facts is None:
        raise Http404(f"There is no session {session_id}.")
    cells, unshown = session_cells(facts.id)
    drawing = charts.charts({facts.id: len(facts.boots)}, first=_number(request.GET.get("charts", "")))
    context = {
        "now": clock.now(),
        "session": facts,
        "lines": verdicts.lines(cells),
        "unshown": unshown,
        "cases": charts.by_case(drawing.charts),
        "drawing": drawing,
        "chart_data": [chart.data() for chart in drawing.charts],
    }
    return render(request, "dashboard/session.html", context)


def _number(given: str) -> int:
    return int(given) if given.isascii() and given.isdecimal() and len(given) < _LONGEST_NUMBER else 0


def _known(given: str, values: "list[str] | tuple[str, ...]") -> str:
    """A filter that names nothing known filters nothing."""
    return given if given in values else ""

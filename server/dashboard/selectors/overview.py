"""The home page: what was found, what is under way, and what waits."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from django.db.models import Count, Q

from server.builds.models import Build
from server.core import clock
from server.core.states import Stateful
from server.dashboard.selectors.listing import SeriesRow, series_rows
from server.lab.models import Boot, Session
from server.reports.models import Delivery, Report
from server.reports.progress import series_progress_many
from server.sources.models import Series

_SHOWN = 20
_FAILURE_STAYS = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class FlightRow:
    """One series without a finding, and how far it came."""

    series: SeriesRow
    state: str
    stage: str
    detail: str


@dataclass(frozen=True, slots=True)
class Load:
    """One line of the counters: how many rows of a kind are in which unfinished state."""

    kind: str
    counts: tuple[tuple[str, int], ...]


def latest_findings() -> tuple[SeriesRow, ...]:
    query = Series.objects.filter(finding__isnull=False).order_by("-finding__id").select_related("mailing_list")
    return series_rows(list(query[:_SHOWN]))


def series_in_flight() -> tuple[FlightRow, ...]:
    """Series without a finding that are not over: those at work before those that wait, the last moved first.

    Those that failed stay for some days.
    """
    recently = clock.now() - _FAILURE_STAYS
    refused = Q(state=Series.State.REFUSED, state_since__gte=recently)
    # Hundreds of held series must not hide the one that is being built.
    at_work = Q(state__in=[Series.State.READY, Series.State.APPLIED], finding=None) | refused
    waiting = Q(state__in=[Series.State.INCOMPLETE, Series.State.HELD], finding=None)
    query = Series.objects.order_by("-state_since", "-id").select_related("mailing_list")
    series = [*query.filter(at_work)[: 2 * _SHOWN], *query.filter(waiting)[:_SHOWN]]
    rows = (
        FlightRow(row, progress.state, progress.current.name, progress.current.detail or progress.reason)
        for row, progress in zip(series_rows(series), series_progress_many(series), strict=True)
        if progress.state != "failed" or row.state_since >= recently
    )
    return tuple(rows)[:_SHOWN]


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

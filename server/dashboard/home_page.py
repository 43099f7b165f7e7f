"""The home page: where the chosen branch stands, what was found, what runs now, and what needs a person."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Exists, OuterRef, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from server.builds.models import Build
from server.core import clock
from server.core.rows.together import read_together
from server.core.states import Stateful
from server.dashboard import series_pages
from server.dashboard.frame.kept_pages import kept
from server.dashboard.lab.machine_lines import BUSY, IDLE, SICK, kind_of
from server.dashboard.pictures.written import heat_csv, problems_of, wants_csv
from server.dashboard.rows.alarms import alarms
from server.dashboard.rows.host_status import SessionRow, session_rows
from server.dashboard.rows.postings import label_of
from server.dashboard.rows.watchers import watchers
from server.dashboard.trees.found import FoundLine, Lately, findings_named, found_lines, with_same
from server.dashboard.trees.heat import BranchHeat, branch_heat
from server.dashboard.trees.measured import LATELY, ChosenBranch, MeasuredBranch, chosen, measured_branches
from server.detection.findings.filters import CLAIMS, OPEN
from server.detection.models import Finding
from server.lab.models import Boot, Host, Machine, Session, Trial
from server.reports.models import Delivery, Report
from server.reports.sending.bounces import refusals_of_lists
from server.sources.models import Series

# Of findings that are open; of series that showed nothing; of what runs.
_OPEN_SHOWN, _QUIET_SHOWN, _RUNNING_SHOWN = 20, 5, 8
# Of those that are open, the newest so many are put in order.
_MOST_ORDERED = 200
# Of a branch in some days, to say what came to it.
_MOST_LATELY = 50
_FAILURE_STAYS = timedelta(days=7)
_ORDERS = ("newest", "worst")


@dataclass(frozen=True, slots=True)
class HomeFindings:
    """`total` counts all that are open; `quiet` are series that showed no change, or too little to say.

    `ordered` is how many of the newest the order is over where there are more, else 0.
    """

    open: tuple[FoundLine, ...]
    total: int
    quiet: tuple[FoundLine, ...]
    lately: Lately | None
    ordered: int


@dataclass(frozen=True, slots=True)
class WorkLine:
    """A series without a finding."""

    id: int
    subject: str
    mark: str
    author: str
    state: str
    state_label: str
    reason: str
    since: datetime


@dataclass(frozen=True, slots=True)
class RunningBuild:
    id: int
    sha: str
    subject: str
    since: datetime


@dataclass(frozen=True, slots=True)
class Load:
    """How many rows of a kind are in which unfinished state."""

    kind: str
    counts: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class MachineCounts:
    total: int
    working: int
    idle: int
    unwell: int


def home_findings(shown: MeasuredBranch | None, order: str) -> HomeFindings:
    """Open claims of series and branches, and what the last days brought to the branch that is shown. Three queries."""
    every = findings_named().order_by("-id")
    open_ = every.filter(state__in=OPEN, kind__in=CLAIMS)
    quiet = every.filter(series__isnull=False, kind__in=[Finding.Kind.UNCHANGED, Finding.Kind.INCONCLUSIVE])
    most = _MOST_ORDERED if order == "worst" else _OPEN_SHOWN
    parts = [open_.values("pk")[:most], quiet.values("pk")[:_QUIET_SHOWN]]
    since = clock.now() - LATELY
    if shown is not None:
        parts.append(every.filter(branch=shown.id, created_at__gte=since).values("pk")[:_MOST_LATELY])
    lines = found_lines(findings_named(Finding.objects.filter(pk__in=parts[0].union(*parts[1:]))))
    claims = [line for line in lines if line.state in OPEN and line.kind in CLAIMS]
    claims = with_same(claims)
    if order == "worst":
        claims.sort(key=lambda line: line.worst)
    late = [line for line in lines if line.created_at >= since]
    own = sum(shown is not None and line.branch_id == shown.id for line in late)
    total = len(claims) if len(claims) < most else open_.order_by().count()
    return HomeFindings(
        open=tuple(claims[:_OPEN_SHOWN]),
        total=total,
        quiet=tuple(line for line in lines if line.series_id is not None and line.kind not in CLAIMS)[:_QUIET_SHOWN],
        lately=Lately.of(late, shown, is_cut=own >= _MOST_LATELY) if shown is not None else None,
        ordered=most if order == "worst" and total > most else 0,
    )


def series_in_work() -> tuple[WorkLine, ...]:
    """Series without a finding that are on their way, or failed in the last days; the last moved first. One query."""
    rows = Series.shown().filter(pk__in=_at_work(clock.now() - _FAILURE_STAYS)).defer("trailers")
    return tuple(
        WorkLine(
            id=row.pk,
            subject=row.subject,
            mark=row.mark,
            author=row.author_name or row.author_address,
            state=row.state,
            state_label=label_of(row),
            reason=row.reason,
            since=row.state_since,
        )
        for row in rows.order_by("-state_since", "-id")[:_RUNNING_SHOWN]
    )


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


_UNFINISHED: Mapping[str, tuple[type[Stateful], Sequence[str]]] = {
    "series": (Series, (Series.State.INCOMPLETE, Series.State.HELD, Series.State.READY)),
    "builds": (Build, (Build.State.WANTED, Build.State.DISPATCHED, Build.State.RUNNING)),
    "sessions": (Session, (Session.State.PLANNED, Session.State.DISPATCHED, Session.State.RUNNING)),
    "boots": (Boot, (Boot.State.RUNNING,)),
    "reports": (Report, (Report.State.DRAFT, Report.State.APPROVED)),
    "mails": (Delivery, (Delivery.State.QUEUED, Delivery.State.SENDING, Delivery.State.FAILED)),
}


def work() -> tuple[tuple[Load, ...], tuple[RunningBuild, ...], list[tuple[Any, ...]]]:
    """What waits and what runs, by kind of row, the builds that run, and what lists sent back. Kinds of which nothing
    does are left out.

    One query.
    """
    parts = [
        model._default_manager.filter(state__in=states).order_by().values_list("state").annotate(count=Count("id"))
        for model, states in _UNFINISHED.values()
    ]
    running = Build.objects.filter(state__in=[Build.State.DISPATCHED, Build.State.RUNNING])
    named = running.order_by("-state_since", "-id").values_list("pk", *_RUNNING_BUILD)[:_RUNNING_SHOWN]
    builds, refused, *counted = read_together(named, refusals_of_lists(), *parts)
    lines = (_load(kind, dict(rows)) for kind, rows in zip(_UNFINISHED, counted, strict=True))
    return tuple(line for line in lines if line.counts), tuple(RunningBuild(*row) for row in builds), refused


_RUNNING_BUILD = ("revision__sha", "revision__subject", "state_since")


def _load(kind: str, counts: Mapping[str, int]) -> Load:
    return Load(kind, tuple((state, counts[state]) for state in _UNFINISHED[kind][1] if counts.get(state)))


def running_sessions() -> tuple[SessionRow, ...]:
    return session_rows(Q(state__in=[Session.State.DISPATCHED, Session.State.RUNNING]), limit=_RUNNING_SHOWN)


_AT_WORK = (Session.State.DISPATCHED, Session.State.RUNNING)
_MOST_ALARMS = 4


def machine_counts(machines: Sequence[Machine]) -> MachineCounts:
    used = [row for row in machines if row.enabled and row.health != Host.Health.RETIRED]
    busy = {row.pk for row in used if getattr(row, "busy", False)}
    kinds = Counter(kind_of(row, busy) for row in used)
    return MachineCounts(len(used), kinds[BUSY], kinds[IDLE], kinds[SICK])


def _machines() -> list[Machine]:
    """Each with whether a session is `busy` on it."""
    at_work = Session.objects.filter(machine=OuterRef("pk"), state__in=_AT_WORK).order_by()
    return list(Machine.objects.annotate(busy=Exists(at_work)).order_by("name"))


_LONGEST_MESSAGE_ID = 500


@require_safe
@kept
def home(request: HttpRequest) -> HttpResponse:
    now = clock.now()
    choice = chosen(measured_branches(), request.GET)
    if wants_csv(request.GET):
        heat = _heat(choice)
        return heat_csv(heat.picture if heat else None, "heat")
    order = request.GET.get("order", "")
    watched, machines = watchers(), _machines()
    load, builds, refused = work()
    found = alarms(now, watched, machines, refused)
    context = {
        "now": now,
        "choice": choice,
        "problems": problems_of(request.GET, ("tree", "branch", "order")),
        "heat": _heat(choice),
        "order": order if order in _ORDERS else _ORDERS[0],
        "orders": _ORDERS,
        "order_problem": order if order and order not in _ORDERS else "",
        "findings": home_findings(choice.shown, order),
        "sessions": running_sessions(),
        "builds": builds,
        "in_work": series_in_work(),
        "load": load,
        "machines": machine_counts(machines),
        "watched": watched,
        "alarms": found[:_MOST_ALARMS],
        "more_alarms": max(0, len(found) - _MOST_ALARMS),
    }
    return render(request, "dashboard/home.html", context)


def _heat(choice: ChosenBranch) -> BranchHeat | None:
    return branch_heat(choice.shown) if choice.shown is not None else None


@require_safe
@kept
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


def _known(given: str, values: "list[str] | tuple[str, ...]") -> str:
    """A filter that names nothing known filters nothing."""
    return given if given in values else ""

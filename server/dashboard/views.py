"""Pages. Each asks selectors for frozen values and renders them; no template reaches the database."""

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from server.core import clock
from server.dashboard.selectors import dots, listing, matrix, overview
from server.dashboard.selectors import machines as lab
from server.dashboard.selectors import sessions as boots
from server.dashboard.selectors.dispatch import dispatch_alarms
from server.dashboard.selectors.watchers import watchers
from server.detection.selectors import session_cells
from server.sources.models import Series

_LONGEST_MESSAGE_ID = 500
_LONGEST_NUMBER = 10


@require_safe
def home(request: HttpRequest) -> HttpResponse:
    watched = watchers()
    now = clock.now()
    context = {
        "now": now,
        "dispatch_alarms": dispatch_alarms(now),
        "findings": overview.latest_findings(),
        "in_flight": overview.series_in_flight(),
        "watchers": watched,
        "alarms": [watcher for watcher in watched if watcher.alarming],
        "machines": lab.machine_rows(),
        "load": overview.load(),
    }
    return render(request, "dashboard/home.html", context)


@require_safe
def series_list(request: HttpRequest) -> HttpResponse:
    names = listing.list_names()
    wanted = listing.SeriesFilter(
        state=_known(request.GET.get("state", ""), Series.State.values),
        mailing_list=_known(request.GET.get("list", ""), names),
        mail=request.GET.get("mail", "").replace("\0", "")[:_LONGEST_MESSAGE_ID],
    )
    context = {
        "now": clock.now(),
        "page": listing.series_page(wanted, request.GET.get("page", "1")),
        "wanted": wanted,
        "states": Series.State.choices,
        "lists": names,
    }
    return render(request, "dashboard/series_list.html", context)


@require_safe
def session(request: HttpRequest, session_id: int) -> HttpResponse:
    facts = boots.session_facts(session_id, logs=request.user.is_staff)
    if facts is None:
        raise Http404(f"There is no session {session_id}.")
    cells, unshown = session_cells(facts.id)
    drawing = dots.charts({facts.id: len(facts.boots)}, first=_number(request.GET.get("charts", "")))
    context = {
        "now": clock.now(),
        "session": facts,
        "lines": matrix.lines(cells, [facts.id] * len(cells)),
        "unshown": unshown,
        "cases": dots.by_case(drawing.charts),
        "drawing": drawing,
        "chart_data": [chart.data() for chart in drawing.charts],
    }
    return render(request, "dashboard/session.html", context)


def _number(given: str) -> int:
    return int(given) if given.isascii() and given.isdecimal() and len(given) < _LONGEST_NUMBER else 0


def _known(given: str, values: "list[str] | tuple[str, ...]") -> str:
    """A filter that names nothing known filters nothing."""
    return given if given in values else ""

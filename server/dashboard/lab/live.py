"""Parts of pages that renew themselves while something is under way, and the pages that are nothing else.

A part whose work is over answers 286: by that htmx knows that it need not ask again.
"""

from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from server.core import clock
from server.dashboard.lab.machine_lines import machine_lines
from server.dashboard.lab.queue_page import queue_facts, wanted_queue
from server.dashboard.lab.work_now import BuildLine, build_line, builds_now, series_line, session_line
from server.dashboard.rows.alarms import what_stopped
from server.lab.models import Attempt, Session
from server.sources.models import Series

_ASK_NO_MORE = 286
# Of the end of a log: what a terminal shows of it, and more than a page needs.
_LOG = 32 * 1024


@require_safe
def machines(request: HttpRequest) -> HttpResponse:
    context = {"now": clock.now(), "machines": machine_lines(), "builds": builds_now()}
    return render(request, "dashboard/machines.html", context)


@require_safe
@never_cache
def machines_now(request: HttpRequest) -> HttpResponse:
    context = {"now": clock.now(), "machines": machine_lines(), "builds": builds_now()}
    return render(request, "dashboard/_machines_now.html", context)


@require_safe
def queue(request: HttpRequest) -> HttpResponse:
    # An empty queue may be one that nobody fills.
    return _queue(request, "dashboard/queue.html", stopped=what_stopped())


@require_safe
@never_cache
def queue_now(request: HttpRequest) -> HttpResponse:
    return _queue(request, "dashboard/_queue_now.html")


def _queue(request: HttpRequest, template: str, **more: object) -> HttpResponse:
    wanted = wanted_queue(request.GET.dict())
    context = {"now": clock.now(), "queue": queue_facts(wanted), "wanted": wanted, "query": request.GET.urlencode()}
    return render(request, template, context | more)


@require_safe
@never_cache
def session_progress(request: HttpRequest, session_id: int) -> HttpResponse:
    line = session_line(session_id)
    if line is None:
        raise Http404(f"There is no session {session_id}.")
    context = {"now": clock.now(), "line": line}
    return _part(request, "dashboard/_session_progress.html", context, over=line.over)


@require_safe
@never_cache
def series_progress(request: HttpRequest, series_id: int) -> HttpResponse:
    series = Series.objects.filter(pk=series_id).defer("trailers").first()
    if series is None:
        raise Http404(f"There is no series {series_id}.")
    line = series_line(series)
    return _part(request, "dashboard/_progress.html", {"now": clock.now(), "line": line}, over=line.over)


@require_safe
@never_cache
def build_progress(request: HttpRequest, build_id: int) -> HttpResponse:
    line: BuildLine | None = build_line(build_id)
    if line is None:
        raise Http404(f"There is no build {build_id}.")
    return _part(request, "dashboard/_build_progress.html", {"now": clock.now(), "line": line}, over=line.over)


@require_safe
@never_cache
def session_log(request: HttpRequest, session_id: int) -> HttpResponse:
    """What the agent logs of the boot that runs. Machines' consoles may hold secrets: it is for people of the lab."""
    if not request.user.is_staff:
        raise Http404("Logs are for people of the lab.")
    session = Session.objects.filter(pk=session_id).first()
    if session is None:
        raise Http404(f"There is no session {session_id}.")
    return _part(
        request,
        "dashboard/_live_log.html",
        {"log": latest_log(Q(session=session))},
        over=session.state in Session.FINAL,
    )


def latest_log(work: Q) -> str:
    log = Attempt.objects.filter(work).order_by("-id").values_list("log", flat=True).first()
    return (log or "")[-_LOG:]


def _part(request: HttpRequest, template: str, context: dict[str, object], *, over: bool) -> HttpResponse:
    return render(request, template, context, status=_ASK_NO_MORE if over else 200)

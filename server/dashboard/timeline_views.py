"""Pages of branches over time."""

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from server.core import clock
from server.dashboard.selectors.timelines import branch_page, timeline_page


@require_safe
def branch(request: HttpRequest, name: str, branch_name: str) -> HttpResponse:
    machine = request.GET.get("machine", "")
    number = request.GET.get("timelines", "1")
    page = branch_page(name, branch_name.replace("\0", ""), machine, number, virtual=settings.VIRTUAL_VERDICTS)
    if page is None:
        raise Http404(f"The tree {name} has no branch {branch_name}.")
    return render(request, "dashboard/branch.html", {"now": clock.now(), "page": page})


@require_safe
def timeline(request: HttpRequest, timeline_id: int) -> HttpResponse:
    page = timeline_page(timeline_id)
    if page is None:
        raise Http404(f"There is no timeline {timeline_id}.")
    return render(request, "dashboard/timeline.html", {"now": clock.now(), "page": page, "line": page.view})

"""Pages of findings: all of them, and one with what it rests on."""

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from server.core import clock
from server.dashboard.selectors.findings import FindingFilter, finding_page, findings_page
from server.detection.models import Finding


@require_safe
def findings(request: HttpRequest) -> HttpResponse:
    wanted = FindingFilter(
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

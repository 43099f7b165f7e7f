"""The page of one series, and the approval of one that is held."""

from django import forms
from django.contrib.auth.decorators import permission_required
from django.contrib.auth.views import redirect_to_login
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from server.core import clock
from server.core.errors import DomainError
from server.dashboard.selectors import dots
from server.dashboard.selectors.approval import PERMISSION
from server.dashboard.selectors.series import series_facts
from server.sources.models import Series
from server.sources.series.services import approve_series

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
        approve_series(series=row, reason=reason, seen=form.cleaned_data["seen"])
    except DomainError as error:
        return _series(request, series_id, problem=error.message, status=_CONFLICT)
    return redirect("series", series_id=series_id)


def _series(request: HttpRequest, series_id: int, *, problem: str = "", status: int = 200) -> HttpResponse:
    facts = series_facts(series_id)
    if facts is None:
        raise Http404(f"There is no series {series_id}.")
    # Cases that moved stand first in the table, so a long page keeps their charts.
    cases = list(dict.fromkeys((row.case.benchmark, row.case.case) for row in facts.matrix.rows))
    drawing = dots.charts({row.id: row.boots for row in facts.sessions}, cases[: dots.MOST_CASES])
    shown = dots.by_case(drawing.charts, cases)
    context = {
        "now": clock.now(),
        "series": facts,
        "problem": problem,
        "cases": shown,
        # One machine leaves room for several cases in a row.
        "single": all(len(case.charts) == 1 for case in shown),
        "undrawn": len(cases[dots.MOST_CASES :]),
        "drawing": drawing,
        "chart_data": [chart.data() for chart in drawing.charts],
    }
    return render(request, "dashboard/series.html", context, status=status)

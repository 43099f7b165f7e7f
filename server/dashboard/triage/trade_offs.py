"""The ledger of trade-offs: which regressions somebody accepted, why, and until when."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib import messages
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from server.core import clock
from server.core.errors import DomainError
from server.dashboard.frame.access import needs
from server.dashboard.rows.figures import paged
from server.dashboard.triage.question import clean
from server.detection.lifecycle.ledger import holding_now, withdraw_acceptance
from server.detection.lifecycle.triage import TRIAGE
from server.detection.models import Acceptance, Finding

_SOON = timedelta(days=14)
_CONFLICT, _BAD = 409, 400
_LONG = tuple(f"finding__{name}" for name in Finding.LONG)
SHOWN = {
    "active": "hold now",
    "soon": f"end within {_SOON.days} days",
    "expired": "have expired",
    "withdrawn": "were taken back",
    "all": "all",
}


@dataclass(frozen=True, slots=True)
class TradeOff:
    id: int
    finding_id: int
    headline: str
    state: str
    what: str
    reason: str
    person: str
    created_at: datetime
    expires_at: datetime | None
    withdrawn_at: datetime | None
    is_active: bool
    is_soon: bool


@require_safe
def trade_offs(request: HttpRequest) -> HttpResponse:
    return _page(request)


@require_POST
@needs(TRIAGE, back=lambda _request, **_: reverse("trade-offs"))
def withdraw(request: HttpRequest, line_id: int) -> HttpResponse:
    line = get_object_or_404(Acceptance, pk=line_id)
    reason = clean(request.POST.get("reason", ""))
    if not reason:
        return _page(request, problem="Say why it is not accepted any more.", status=_BAD)
    try:
        done = withdraw_acceptance(line, actor=request.user.get_username(), reason=reason)
    except DomainError as error:
        return _page(request, problem=error.message, status=_CONFLICT)
    if not done:
        told = f"Acceptance {line.pk} of finding {line.finding_id} was taken back already."
        return _page(request, problem=told, status=_CONFLICT)
    messages.success(request, f"Acceptance {line.pk} of finding {line.finding_id} is taken back.")
    return redirect("trade-offs")


def _page(request: HttpRequest, *, problem: str = "", status: int = 200) -> HttpResponse:
    now = clock.now()
    asked = clean(request.GET.get("show", "")) or "active"
    if asked not in SHOWN:
        problem = f"There is no choice {asked[:60]} here. Known: {', '.join(SHOWN)}."
    context = {
        "now": now,
        "page": paged(
            _lines(asked, now), request.GET.get("page", "1"), lambda lines: [_row(line, now) for line in lines]
        ),
        "problem": problem,
        "asked": asked,
        "shown": SHOWN.items(),
        "may_triage": request.user.has_perm(TRIAGE),
    }
    return render(request, "dashboard/trade_offs.html", context, status=status)


def _lines(asked: str, now: datetime) -> QuerySet[Acceptance]:
    lines = holding_now(Acceptance.objects.select_related("finding", "metric__benchmark").defer(*_LONG))
    if not settings.VIRTUAL_VERDICTS:
        lines = lines.filter(finding__virtual=False)
    standing = Q(withdrawn_at=None)
    wanted = {
        "active": standing & (Q(expires_at=None) | Q(expires_at__gt=now)),
        "soon": standing & Q(expires_at__gt=now, expires_at__lte=now + _SOON),
        "expired": standing & Q(expires_at__lte=now),
        "withdrawn": ~standing,
        "all": Q(),
    }
    return lines.filter(wanted[asked]).order_by("-id") if asked in wanted else lines.none()


def _row(line: Acceptance, now: datetime) -> TradeOff:
    metric = f"{line.metric.benchmark.name} {line.metric.name}" if line.metric else "all metrics"
    active = bool(getattr(line, "active", False))
    return TradeOff(
        id=line.pk,
        finding_id=line.finding_id,
        headline=line.finding.headline,
        state=line.finding.state,
        what=f"{metric} on {', '.join(line.uarchs) or 'every microarchitecture'}",
        reason=line.reason,
        person=line.person,
        created_at=line.created_at,
        expires_at=line.expires_at,
        withdrawn_at=line.withdrawn_at,
        is_active=active,
        is_soon=active and line.expires_at is not None and line.expires_at <= now + _SOON,
    )

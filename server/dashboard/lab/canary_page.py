"""The canary: how far the newest one has come, and what became of those before. No list tells of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from server.core import clock
from server.dashboard.rows.figures import span
from server.detection.models import Finding
from server.lab.models import Canary
from server.operations.canary import canary_alarm
from server.reports.models import DeliveryState
from server.reports.progress import series_progress_many
from server.sources.models import Series

_SHOWN = 30


@dataclass(frozen=True, slots=True)
class StageLine:
    """`since` only of the one that it is in."""

    name: str
    meaning: str
    allowed: str
    since: datetime | None


@dataclass(frozen=True, slots=True)
class CanaryLine:
    """`told_at`: when its report left; until then `stage` says how far it has come."""

    series: int
    subject: str
    posted_at: datetime
    stage: str
    detail: str
    kind: str
    told_at: datetime | None


@require_safe
def canary(request: HttpRequest) -> HttpResponse:
    row = Canary.objects.select_related("tree", "machine").first()
    if row is None:
        raise Http404("This site has no canary.")
    now = clock.now()
    context = {
        "now": now,
        "canary": row,
        "alarm": canary_alarm(row, now) if row.enabled else None,
        "stages": _stages(row),
        "lines": _lines(list(Series.objects.filter(canary=True).defer("trailers").order_by("-id")[:_SHOWN])),
    }
    return render(request, "dashboard/canary.html", context)


def _stages(row: Canary) -> list[StageLine]:
    fields = ((name, row._meta.get_field(f"{name}_minutes")) for name in Canary.MINUTES)
    return [
        StageLine(
            name=name,
            meaning=str(getattr(field, "help_text", "")),
            allowed=span(60 * getattr(row, f"{name}_minutes")),
            since=row.stage_since if row.enabled and row.stage == name else None,
        )
        for name, field in fields
    ]


def _lines(series: Sequence[Series]) -> list[CanaryLine]:
    rows = Finding.objects.filter(series__in=[one.pk for one in series]).select_related("report__delivery")
    found = {row.series_id: row for row in rows.defer(*Finding.LONG, "report__body") if row.series_id is not None}
    return [
        CanaryLine(
            series=one.pk,
            subject=one.subject,
            posted_at=one.received_at,
            stage=progress.current.name,
            detail=progress.current.detail,
            kind=finding.get_kind_display() if (finding := found.get(one.pk)) else "",
            told_at=_told_at(finding),
        )
        for one, progress in zip(series, series_progress_many(series, found), strict=True)
    ]


def _told_at(finding: Finding | None) -> datetime | None:
    delivery = getattr(getattr(finding, "report", None), "delivery", None)
    return delivery.sent_at if delivery is not None and delivery.state == DeliveryState.SENT else None

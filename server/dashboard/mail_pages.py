"""Mails: what would leave the site now, what holds the others, and each as it would be sent."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from django.db.models import Count, Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from server.core import clock
from server.reports.leaving import Gate, Outgoing, gate, outgoing, with_mails
from server.reports.models import Report

# Of each kind on the page.
_SHOWN = 25
_OPEN: Final = (Report.State.APPROVED, Report.State.DRAFT)


@dataclass(frozen=True, slots=True)
class MailList:
    """`leaving` would be sent at this moment, or as soon as the stop switch is off; `held` waits or failed."""

    gate: Gate
    leaving: tuple[Outgoing, ...]
    held: tuple[Outgoing, ...]
    drafts: tuple[Outgoing, ...]
    over: tuple[Outgoing, ...]
    counts: tuple[tuple[str, str, int], ...]
    state: str
    unknown: str

    @property
    def shown(self) -> int:
        return _SHOWN


def mail_list(given: Mapping[str, str]) -> MailList:
    """At most nine queries."""
    state = given.get("state", "")
    known = state in Report.State.values
    passing = gate()
    reports = with_mails(Report.objects.all())
    wanted = [one for one in _OPEN if not known or one == state]
    opened = [row for one in wanted for row in _first(reports.filter(state=one), oldest=one == Report.State.APPROVED)]
    ended = Q(state=state) if known else ~Q(state__in=_OPEN)
    over = list(reports.filter(ended & ~Q(state__in=_OPEN)).order_by("-state_since", "-id")[:_SHOWN])
    rows = outgoing([*opened, *over], passing)
    approved = [row for row in rows if row.report.state == Report.State.APPROVED]
    return MailList(
        gate=passing,
        leaving=tuple(row for row in approved if _leaves(row, passing)),
        held=tuple(row for row in approved if not _leaves(row, passing)),
        drafts=tuple(row for row in rows if row.report.state == Report.State.DRAFT),
        over=tuple(row for row in rows if row.report.state not in _OPEN),
        counts=_counts(),
        state=state if known else "",
        unknown="" if known or not state else state[:60],
    )


def _first(reports: "QuerySet[Report]", *, oldest: bool) -> "list[Report]":
    return list(reports.order_by("id" if oldest else "-id")[:_SHOWN])


def _leaves(row: Outgoing, passing: Gate) -> bool:
    return not row.held or (row.switched_off and not passing.is_open)


def _counts() -> tuple[tuple[str, str, int], ...]:
    found = Counter(dict(Report.objects.order_by().values_list("state").annotate(Count("pk"))))
    return tuple((value, label, found[value]) for value, label in Report.State.choices)


@require_safe
def mails(request: HttpRequest) -> HttpResponse:
    context = {"now": clock.now(), "mails": mail_list(request.GET.dict()), "states": Report.State.choices}
    return render(request, "dashboard/mails.html", context)


@require_safe
def mail(request: HttpRequest, report_id: int) -> HttpResponse:
    report = with_mails(Report.objects.filter(pk=report_id)).first()
    if report is None:
        raise Http404(f"There is no mail {report_id}.")
    passing = gate()
    context = {"now": clock.now(), "gate": passing, "row": outgoing([report], passing)[0]}
    return render(request, "dashboard/mail.html", context)

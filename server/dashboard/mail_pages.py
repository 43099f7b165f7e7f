"""Mails: what would leave the site now, what holds the others, and each as it would be sent."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import unified_diff
from typing import Final

from django.db.models import Count, Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from server.core import clock
from server.core.models import Transition
from server.reports.leaving import Gate, Outgoing, gate, in_line, outgoing, with_mails
from server.reports.models import DeliveryState, Report
from server.reports.moderation import seen_now

# Of each kind on the page.
_SHOWN = 25
_MOST_STEPS = 30
_MODERATE = "reports.change_report"
_DRAFT: Final = Report.State.DRAFT
_UNDECIDED: Final = (_DRAFT, Report.State.HELD)
_OPEN: Final = (Report.State.APPROVED, *_UNDECIDED)


@dataclass(frozen=True, slots=True)
class MailList:
    """`leaving` would be sent at this moment, or as soon as the stop switch is off; `held` waits.

    `is_cut`: more are in line than were looked at.
    """

    gate: Gate
    leaving: tuple[Outgoing, ...]
    held: tuple[Outgoing, ...]
    is_cut: bool
    failed: tuple[Outgoing, ...]
    drafts: tuple[Outgoing, ...]
    over: tuple[Outgoing, ...]
    counts: tuple[tuple[str, str, int], ...]
    state: str
    unknown: str

    @property
    def shown(self) -> int:
        return _SHOWN

    @property
    def more_leave(self) -> bool:
        """Whether others may leave as well: there are some, and the hour has room for them."""
        return self.is_cut and len(self.leaving) < self.gate.room


def mail_list(given: Mapping[str, str]) -> MailList:
    """A dozen queries at most, but for texts that are written anew to see whether they still stand."""
    state = given.get("state", "")
    known = state in Report.State.values
    passing = gate()
    reports = with_mails(Report.shown())
    wanted = [one for one in _OPEN if not known or one == state]
    line = list(in_line(reports)[: _SHOWN + 1]) if Report.State.APPROVED in wanted else []
    failed = _failed(reports) if Report.State.APPROVED in wanted else []
    undecided = [one for one in _UNDECIDED if one in wanted]
    drafts = list(reports.filter(state__in=undecided).order_by("-id")[:_SHOWN]) if undecided else []
    ended = Q(state=state) if known else ~Q(state__in=_OPEN)
    over = list(reports.filter(ended & ~Q(state__in=_OPEN)).order_by("-state_since", "-id")[:_SHOWN])
    rows = outgoing([*line[:_SHOWN], *failed, *drafts, *over], passing)
    approved = [row for row in rows if row.report.state == Report.State.APPROVED]
    waiting = approved[: len(line[:_SHOWN])]
    return MailList(
        gate=passing,
        leaving=tuple(row for row in waiting if _leaves(row, passing)),
        held=tuple(row for row in waiting if not _leaves(row, passing)),
        is_cut=len(line) > _SHOWN,
        failed=tuple(approved[len(waiting) :]),
        drafts=tuple(row for row in rows if row.report.state in _UNDECIDED),
        over=tuple(row for row in rows if row.report.state not in _OPEN),
        counts=_counts(),
        state=state if known else "",
        unknown="" if known or not state else state[:60],
    )


def _failed(reports: "QuerySet[Report]") -> "list[Report]":
    """Released, but their mail was refused: they stay so until a person releases or rejects them."""
    refused = reports.filter(state=Report.State.APPROVED, delivery__state=DeliveryState.FAILED)
    return list(refused.order_by("-delivery__state_since", "-id")[:_SHOWN])


def _leaves(row: Outgoing, passing: Gate) -> bool:
    return not row.held or (row.switched_off and not passing.is_open)


def _counts() -> tuple[tuple[str, str, int], ...]:
    found = Counter(dict(Report.shown().order_by().values_list("state").annotate(Count("pk"))))
    return tuple((value, label, found[value]) for value, label in Report.State.choices)


@require_safe
def mails(request: HttpRequest) -> HttpResponse:
    context = {
        "now": clock.now(),
        "mails": mail_list(request.GET.dict()),
        "states": Report.State.choices,
        "may_moderate": request.user.has_perm(_MODERATE),
    }
    return render(request, "dashboard/mails.html", context)


@require_safe
def mail(request: HttpRequest, report_id: int) -> HttpResponse:
    return mail_page(request, report_id)


def mail_page(
    request: HttpRequest,
    report_id: int,
    *,
    problem: str = "",
    typed: Mapping[str, str] | None = None,
    status: int = 200,
) -> HttpResponse:
    """`typed` is what a form held that was refused for `problem`."""
    # First: what comes in between is then not taken as seen.
    seen = seen_now(report_id)
    report = with_mails(Report.objects.filter(pk=report_id)).first()
    if report is None:
        raise Http404(f"There is no mail {report_id}.")
    passing = gate()
    # Those before it may take what the hour has left.
    line = list(in_line(with_mails(Report.objects.all()))[:_SHOWN]) if report.state == Report.State.APPROVED else []
    if all(one.pk != report.pk for one in line):
        line.append(report)
    row = next(one for one in outgoing(line, passing) if one.report.pk == report.pk)
    context = {
        "now": clock.now(),
        "gate": passing,
        "row": row,
        "seen": seen,
        "problem": problem,
        "typed": {name: (typed or {}).get(name, "") for name in ("act", "reason", "body")},
        "edits": changed_lines(report.composed, report.body) if report.is_edited else (),
        "steps": Transition.objects.filter(subject="report", subject_id=report_id).order_by("-pk")[:_MOST_STEPS],
        "may_moderate": request.user.has_perm(_MODERATE),
        "later": report.answered_by.only("pk", "kind", "subject", "state").order_by("pk"),
    }
    return render(request, "dashboard/mail.html", context, status=status)


@dataclass(frozen=True, slots=True)
class DiffLine:
    """`mark` is + or - for a line that came or went, @ between parts, and blank for one that stayed."""

    mark: str
    text: str


def changed_lines(before: str, after: str) -> tuple[DiffLine, ...]:
    """What a person changed, with three lines around it."""
    found = unified_diff(before.splitlines(), after.splitlines(), lineterm="")
    return tuple(DiffLine(line[:1], line[1:]) for line in list(found)[2:])

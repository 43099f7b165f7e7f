"""What a moderator does to a mail: approve, edit, hold, let go, reject; and the switch that stops all that leaves.

The form says up to which step of the mail's life it was shown. Where somebody acted since, or its text was written
anew, nothing is done, and what was typed stays in the form.
"""

from collections.abc import Callable, Mapping
from typing import Final

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.views.decorators.http import require_POST

from server.core.errors import DomainError
from server.dashboard.frame.access import needs
from server.dashboard.mail_pages import mail_page
from server.reports.models import Report
from server.reports.moderation import approve_report, edit_report, hold_report, reject_report, release_report
from server.reports.stop_switch import go_on, stop_all

MODERATE: Final = "reports.change_report"
_CONFLICT, _BAD = 409, 400
_CONFLICTS = frozenset({"changed", "conflict", "superseded"})
_LONGEST_BODY = 20_000
ACTS: Final[Mapping[str, str]] = {
    "approve": "approved, and queued",
    "hold": "held",
    "release": "a draft again",
    "reject": "rejected: it is not sent",
    "edit": "edited: read it once more, then approve it",
}


class ModerationForm(forms.Form):
    act = forms.ChoiceField(
        choices=list(ACTS.items()),
        error_messages={"required": "Say what to do.", "invalid_choice": "There is no such act."},
    )
    seen = forms.IntegerField(min_value=0, error_messages={"required": "The form does not say what it was shown."})
    reason = forms.CharField(max_length=500, strip=True, required=False)
    # Blanks at the beginning of a table are part of it.
    body = forms.CharField(max_length=_LONGEST_BODY, strip=False, required=False)


@require_POST
@needs(MODERATE, back=lambda _request, report_id: reverse("mail", args=[report_id]))
def act(request: HttpRequest, report_id: int) -> HttpResponse:
    get_object_or_404(Report.objects.only("pk"), pk=report_id)
    form = ModerationForm(request.POST)
    if not form.is_valid():
        said = " ".join(str(error) for errors in form.errors.values() for error in errors)
        return mail_page(request, report_id, problem=said, typed=request.POST.dict(), status=_BAD)
    given = form.cleaned_data
    actor = request.user.get_username()
    try:
        _ACTS[given["act"]](report_id, actor, given)
    except DomainError as error:
        status = _CONFLICT if error.code in _CONFLICTS else _BAD
        return mail_page(request, report_id, problem=error.message, typed=request.POST.dict(), status=status)
    messages.success(request, f"Mail {report_id} is {ACTS[given['act']]}.")
    return redirect("mail", report_id)


@require_POST
@needs(MODERATE, back=lambda _request: reverse("mails"))
def switch(request: HttpRequest) -> HttpResponse:
    """Stop all, or go on after the stop that was shown."""
    actor, reason = request.user.get_username(), request.POST.get("reason", "")[:500].replace("\0", "")
    shown = request.POST.get("stop", "")
    try:
        if shown.isdecimal():
            done = go_on(reason=reason, actor=actor, stop_id=int(shown[:18]))
            told = "Mails and calls leave again." if done else "It was let go on already."
        else:
            stop = stop_all(reason=reason, actor=actor)
            told = f"Nothing leaves any more: stopped by {stop.person}."
    except DomainError as error:
        messages.error(request, f"Nothing was changed: {error.message}.")
    else:
        messages.success(request, told)
    return redirect("mails")


def _approve(report_id: int, actor: str, given: Mapping[str, str]) -> None:
    approve_report(
        report_id=report_id, reason=given["reason"] or f"read and approved by {actor}", actor=actor, seen=_seen(given)
    )


def _hold(report_id: int, actor: str, given: Mapping[str, str]) -> None:
    hold_report(report_id=report_id, reason=given["reason"], actor=actor, seen=_seen(given))


def _release(report_id: int, actor: str, given: Mapping[str, str]) -> None:
    release_report(report_id=report_id, reason=given["reason"], actor=actor, seen=_seen(given))


def _reject(report_id: int, actor: str, given: Mapping[str, str]) -> None:
    if not given["reason"]:
        raise DomainError("no-reason", "Say why it is not sent")
    reject_report(report_id=report_id, reason=given["reason"], actor=actor, seen=_seen(given))


def _edit(report_id: int, actor: str, given: Mapping[str, str]) -> None:
    edit_report(report_id=report_id, body=given["body"], seen=_seen(given), actor=actor, reason=given["reason"])


def _seen(given: Mapping[str, str]) -> int:
    return int(given["seen"])


_ACTS: Final[Mapping[str, Callable[[int, str, Mapping[str, str]], None]]] = {
    "approve": _approve,
    "hold": _hold,
    "release": _release,
    "reject": _reject,
    "edit": _edit,
}

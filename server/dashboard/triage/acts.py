"""What a triager does to one finding or to many at once, by a plain form.

The form tells of each finding up to which step of its life it was shown. What cannot be done is told for each finding
with who did what meanwhile, and everything else is done.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django import forms
from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST

from server.core import clock
from server.core.errors import DomainError
from server.dashboard.frame.access import needs, own_page, refuse_without
from server.dashboard.triage.question import clean, moment_of
from server.detection.branches.release import Why, invalidate
from server.detection.lifecycle.ledger import accept
from server.detection.lifecycle.remarks import mark_duplicate
from server.detection.lifecycle.triage import TRIAGE, as_seen, assign, retest, triagers, with_seen
from server.detection.models import Finding

RETEST_PERMISSION = "lab.add_trial"
_MOST = 200
_CONFLICT, _BAD = 409, 400
# Of the largest number of a row.
_DIGITS = 18
ACTS: Final[Mapping[str, str]] = {
    "assign-me": "assigned to you",
    "assign": "assigned",
    "unassign": "assigned to nobody",
    "accept": "accepted",
    "invalid": "withdrawn",
    "duplicate": "superseded by the one that tells of the same change",
    "retest": "to be measured again",
}
_WITH_REASON = frozenset({"accept", "invalid", "duplicate", "retest"})


@dataclass(frozen=True, slots=True)
class ShownFinding:
    """A finding as the form names it: its id, and the step up to which it was shown."""

    finding: int
    seen: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """`again` is the form's name of the finding as it is now, where the act can be sent once more."""

    finding: int
    headline: str
    why: str
    again: str


class ActForm(forms.Form):
    act = forms.ChoiceField(
        choices=list(ACTS.items()),
        error_messages={"required": "Say what to do.", "invalid_choice": "There is no such act."},
    )
    finding = forms.CharField(required=False)
    reason = forms.CharField(max_length=500, strip=True, required=False)
    why = forms.ChoiceField(choices=[(why.value, why.value) for why in Why], required=False)
    until = forms.CharField(max_length=40, strip=True, required=False)
    assignee = forms.CharField(max_length=150, strip=True, required=False)
    of = forms.CharField(max_length=_DIGITS, strip=True, required=False)

    def clean_finding(self) -> list[ShownFinding]:
        given = self.data.getlist("finding") if hasattr(self.data, "getlist") else []
        shown = [one for one in map(_shown, given) if one is not None]
        if not given:
            raise forms.ValidationError("Select a finding first.")
        if len(shown) < len(given):
            raise forms.ValidationError("The form names findings that it was not shown with: load the page again.")
        if len(shown) > _MOST:
            raise forms.ValidationError(f"Select {_MOST} findings at most.")
        return list(dict.fromkeys(shown))

    def clean_until(self) -> datetime | None:
        given = clean(self.cleaned_data["until"])
        at = moment_of(given) if given else None
        if given and at is None:
            raise forms.ValidationError(f"Write a day as 2026-11-30, not {given}.")
        if at is not None and at <= clock.now():
            raise forms.ValidationError(f"{at:%Y-%m-%d %H:%M} UTC is over.")
        return at

    def clean(self) -> dict[str, Any]:
        given = super().clean() or self.cleaned_data
        act = given.get("act", "")
        if act in _WITH_REASON and not given.get("reason"):
            self.add_error("reason", "Say why; everybody can read it.")
        if act == "invalid" and not given.get("why"):
            self.add_error("why", "Say what it was: noise, layout, the machine, or that it is wrong.")
        if act == "duplicate":
            of = given.get("of", "")
            given["other"] = Finding.objects.filter(pk=int(of)).first() if _is_number(of) else None
            if given["other"] is None:
                self.add_error("of", "Say by its number which finding tells of the same change.")
        if act == "assign":
            given["person"] = triagers().filter(username=clean(given.get("assignee", ""))).first()
            if given["person"] is None:
                known = ", ".join(triagers().values_list("username", flat=True)[:50])
                self.add_error("assignee", f"Nobody of that name triages here. Known: {known}.")
        return given


def _shown(given: str) -> ShownFinding | None:
    finding, _, seen = given.partition(":")
    fit = _is_number(finding) and _is_number(seen)
    return ShownFinding(int(finding), int(seen)) if fit else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _DIGITS


def _back(request: HttpRequest) -> str:
    return own_page(request, request.POST.get("next", ""), reverse("finding-list"))


@require_POST
@needs(TRIAGE, back=_back)
def act(request: HttpRequest) -> HttpResponse:
    form = ActForm(request.POST)
    if not form.is_valid():
        problems = [str(text) for texts in form.errors.values() for text in texts]
        return _again(request, problems=problems, status=_BAD)
    given = form.cleaned_data
    if given["act"] == "retest":
        refuse_without(request, RETEST_PERMISSION)
    done: list[int] = []
    under_way: list[int] = []
    refused = []
    for shown in given["finding"]:
        try:
            (done if _do(request, shown, given) else under_way).append(shown.finding)
        except DomainError as error:
            refused.append((shown, error))
    if under_way:
        messages.info(request, f"{_named(under_way)}: this goes on already, nothing new was asked for.")
    if refused:
        return _again(request, done=done, refused=_refusals(refused), status=_CONFLICT)
    if done:
        messages.success(request, f"{_named(done)}: {_told(given)}.")
    return redirect(_back(request))


def _named(findings: Sequence[int]) -> str:
    said = ", ".join(map(str, findings[:10])) + (", ..." if len(findings) > 10 else "")  # noqa: PLR2004 (what is read at once)
    return f"{'Finding' if len(findings) == 1 else 'Findings'} {said}"


def _told(given: Mapping[str, Any]) -> str:
    if given["act"] == "assign":
        return f"assigned to {given['person'].get_username()}"
    if given["act"] == "duplicate":
        return f"superseded by finding {given['other'].pk}"
    until = f" until {given['until']:%Y-%m-%d}" if given["act"] == "accept" and given["until"] else ""
    return f"{ACTS[given['act']]}{until}"


def _do(request: HttpRequest, shown: ShownFinding, given: Mapping[str, Any]) -> bool:
    """False where a retest that goes on already is what was asked for."""
    actor, wanted = request.user.get_username(), given["act"]
    if wanted == "retest":
        finding = Finding.objects.filter(pk=shown.finding).first()
        if finding is None:
            raise DomainError("finding-unknown", f"there is no finding {shown.finding}")
        return retest(finding, seen=shown.seen, actor=actor, reason=given["reason"])[1]
    other = given["other"].pk if wanted == "duplicate" else None
    with as_seen(shown.finding, shown.seen, beside=other) as finding:
        if wanted == "invalid":
            invalidate(finding, actor=actor, why=Why(given["why"]), reason=given["reason"])
        elif wanted == "duplicate":
            mark_duplicate(finding, given["other"], actor=actor, reason=given["reason"])
        elif wanted == "accept":
            accept(finding, actor=actor, reason=given["reason"], expires_at=given["until"])
        else:
            _assign(request, finding, given)
    return True


def _assign(request: HttpRequest, finding: Finding, given: Mapping[str, Any]) -> None:
    me = User.objects.get(username=request.user.get_username())
    people: Mapping[str, Callable[[], User | None]] = {
        "assign-me": lambda: me,
        "assign": lambda: given["person"],
        "unassign": lambda: None,
    }
    assign(finding, people[given["act"]](), actor=me.get_username())


def _refusals(refused: Sequence[tuple[ShownFinding, DomainError]]) -> list[Refusal]:
    """As each finding is now: who has read what changed may decide anew."""
    rows = with_seen(Finding.objects.only("pk", "headline")).in_bulk([shown.finding for shown, _ in refused])
    found = []
    for shown, error in refused:
        row = rows.get(shown.finding)
        again = f"{row.pk}:{getattr(row, 'seen', 0)}" if row is not None and error.code == "changed" else ""
        found.append(Refusal(shown.finding, row.headline if row else "", error.message, again))
    return found


def _again(
    request: HttpRequest,
    *,
    status: int,
    problems: Sequence[str] = (),
    done: Sequence[int] = (),
    refused: Sequence[Refusal] = (),
) -> HttpResponse:
    """What was not done and why, with the same form to send it once more."""
    given = request.POST
    known = [one for one in map(_shown, given.getlist("finding")[:_MOST]) if one is not None]
    if refused:
        marks = [refusal.again for refusal in refused if refusal.again]
    else:
        marks = [f"{one.finding}:{one.seen}" for one in known]
    wanted = given.get("act", "")
    context = {
        "problems": problems,
        "done": done,
        "refused": refused,
        "marks": marks,
        "act": wanted if wanted in ACTS else "",
        "told": ACTS.get(wanted, ""),
        "given": {name: clean(given.get(name, "")) for name in ("reason", "why", "until", "assignee", "of")},
        "reasons_why": [why.value for why in Why],
        "people": list(triagers().values_list("username", flat=True)),
        "next": _back(request),
    }
    return render(request, "dashboard/triage_again.html", context, status=status)

"""What a signed-in person is told of by mail or webhook: the list, asking for more, changing and ending one, and how
calls fared.

The secret of a webhook is shown once, on the page that follows its making; who lost it makes another one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.db.models import Prefetch
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from server.core import clock
from server.core.errors import DomainError
from server.dashboard.triage.question import clean
from server.lab.models import Microarchitecture
from server.reports.models import HookCall, Subscription
from server.reports.subscribers.subscription import (
    NARROWED,
    change_subscription,
    end_subscription,
    hook_secret,
    renew_secret,
    subscribe,
    wish,
)
from server.results.models import Benchmark
from server.sources.models import Tree

_FIELDS = ("way", "pace", "url", "claim", "path", *NARROWED)
_MOST_CALLS = 5
_BAD, _CONFLICT = 400, 409
# Where the session keeps whose secret the next page is to show: the secret itself is stored nowhere.
_SHOWN_ONCE = "shown_once"


@dataclass(frozen=True, slots=True)
class ShownCall:
    event: str
    finding: int
    state: str
    label: str
    reason: str
    status: int | None
    since: datetime


@dataclass(frozen=True, slots=True)
class ShownSubscription:
    """`given` is what its form says; `secret` is there on the page that follows its making."""

    id: int
    wish: str
    way: str
    pace: str
    host: str
    url: str
    secret: str
    created_at: datetime
    calls: tuple[ShownCall, ...]
    given: Mapping[str, str]
    problem: str


@require_GET
@never_cache
@login_required
def subscriptions(request: HttpRequest) -> HttpResponse:
    return _page(request)


@require_POST
@never_cache
@login_required
def add(request: HttpRequest) -> HttpResponse:
    given = {name: clean(request.POST.get(name, "")) for name in _FIELDS}
    try:
        row, is_new = subscribe(_person(request), given)
    except DomainError as error:
        return _page(request, given=given, problem=error.message, status=_BAD)
    if is_new and row.way == Subscription.Way.HOOK:
        request.session[_SHOWN_ONCE] = row.pk
    messages.success(request, f"You will be told of {wish(row)}.")
    return redirect("subscriptions")


@require_POST
@never_cache
@login_required
def change(request: HttpRequest, subscription_id: int) -> HttpResponse:
    row = _own(request, subscription_id)
    given = {name: clean(request.POST.get(name, "")) for name in _FIELDS}
    try:
        changed = change_subscription(row, given)
    except DomainError as error:
        status = _CONFLICT if error.code == "conflict" else _BAD
        return _page(request, changing=subscription_id, given=given, problem=error.message, status=status)
    messages.success(request, f"From now on you are told of {wish(changed)}.")
    return redirect("subscriptions")


@require_POST
@login_required
def renew(request: HttpRequest, subscription_id: int) -> HttpResponse:
    try:
        renew_secret(_own(request, subscription_id))
    except DomainError as error:
        messages.error(request, f"Nothing was changed: {error.message}.")
    else:
        request.session[_SHOWN_ONCE] = subscription_id
        messages.success(request, "There is a new secret: the old one signs nothing any more.")
    return redirect("subscriptions")


@require_POST
@login_required
def end(request: HttpRequest, subscription_id: int) -> HttpResponse:
    row = _own(request, subscription_id)
    ended = end_subscription(row)
    messages.success(request, f"{wish(row).capitalize()}: {'ended' if ended else 'it had ended already'}.")
    return redirect("subscriptions")


def _person(request: HttpRequest) -> User:
    assert isinstance(request.user, User)
    return request.user


def _own(request: HttpRequest, subscription_id: int) -> Subscription:
    return get_object_or_404(Subscription.objects.select_related("user"), pk=subscription_id, user=_person(request))


def _page(
    request: HttpRequest,
    *,
    given: Mapping[str, str] | None = None,
    changing: int = 0,
    problem: str = "",
    status: int = 200,
) -> HttpResponse:
    """`given` and `problem` are of the subscription that is `changing`, or of a new one."""
    rows = _rows(_person(request), secret_of=request.session.pop(_SHOWN_ONCE, 0))
    if changing and given is not None:
        rows = [replace(row, given=given, problem=problem) if row.id == changing else row for row in rows]
        given, problem = None, ""
    context = {
        "now": clock.now(),
        "rows": rows,
        "given": given or {name: clean(request.GET.get(name, "")) for name in _FIELDS},
        "problem": problem,
        "ways": Subscription.Way.choices,
        "paces": Subscription.Pace.choices,
        "claims": Subscription.Claim.choices,
        "trees": Tree.objects.order_by("name").values_list("name", flat=True),
        "uarchs": Microarchitecture.objects.order_by("name").values_list("name", flat=True),
        "benchmarks": Benchmark.objects.order_by("name").values_list("name", flat=True),
    }
    return render(request, "dashboard/subscriptions.html", context, status=status)


def _rows(person: User, *, secret_of: int) -> list[ShownSubscription]:
    calls = HookCall.objects.order_by("-pk").defer("document")
    active = Subscription.objects.filter(user=person, ended_at=None).select_related("tree", "uarch", "benchmark")
    rows = active.prefetch_related(Prefetch("calls", calls[:_MOST_CALLS], to_attr="last_calls"))
    return [_shown(row, secret=hook_secret(row) if row.pk == secret_of else "") for row in rows.order_by("pk")]


def _shown(row: Subscription, *, secret: str) -> ShownSubscription:
    return ShownSubscription(
        id=row.pk,
        wish=wish(row),
        way=Subscription.Way(row.way).label,
        pace=Subscription.Pace(row.pace).label,
        host=urlsplit(row.url).hostname or "",
        url=row.url,
        secret=secret,
        created_at=row.created_at,
        calls=tuple(_call(call) for call in getattr(row, "last_calls", [])),
        given={name: _written(getattr(row, name)) for name in _FIELDS},
        problem="",
    )


def _written(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else value.name


def _call(call: HookCall) -> ShownCall:
    return ShownCall(
        event=call.event,
        finding=call.finding_id,
        state=call.state,
        label=HookCall.State(call.state).label,
        reason=call.reason,
        status=call.status,
        since=call.state_since,
    )

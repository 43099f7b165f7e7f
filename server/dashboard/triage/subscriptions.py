"""What a signed-in person is told of by mail or webhook: the list, asking for more, ending one, and how calls fared."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlsplit

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.db.models import Prefetch
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_GET, require_POST

from server.core import clock
from server.core.errors import DomainError
from server.dashboard.triage.question import clean
from server.lab.models import Microarchitecture
from server.reports.models import HookCall, Subscription
from server.reports.subscribers.subscription import NARROWED, end_subscription, hook_secret, subscribe, wish
from server.results.models import Benchmark
from server.sources.models import Tree

_FIELDS = ("way", "pace", "url", "claim", "path", *NARROWED)
_MOST_CALLS = 5
_BAD = 400


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
    """`secret` signs the calls of a webhook; only its owner reads this page."""

    id: int
    wish: str
    way: str
    pace: str
    host: str
    url: str
    secret: str
    created_at: datetime
    calls: tuple[ShownCall, ...]


@require_GET
@login_required
def subscriptions(request: HttpRequest) -> HttpResponse:
    return _page(request)


@require_POST
@login_required
def add(request: HttpRequest) -> HttpResponse:
    given = {name: clean(request.POST.get(name, "")) for name in _FIELDS}
    try:
        row = subscribe(_person(request), given)
    except DomainError as error:
        return _page(request, given=given, problem=error.message, status=_BAD)
    messages.success(request, f"You will be told of {wish(row)}.")
    return redirect("subscriptions")


@require_POST
@login_required
def end(request: HttpRequest, subscription_id: int) -> HttpResponse:
    row = get_object_or_404(Subscription, pk=subscription_id, user=_person(request))
    ended = end_subscription(row)
    messages.success(request, f"{wish(row).capitalize()}: {'ended' if ended else 'it had ended already'}.")
    return redirect("subscriptions")


def _person(request: HttpRequest) -> User:
    assert isinstance(request.user, User)
    return request.user


def _page(
    request: HttpRequest, *, given: Mapping[str, str] | None = None, problem: str = "", status: int = 200
) -> HttpResponse:
    context = {
        "now": clock.now(),
        "rows": _rows(_person(request)),
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


def _rows(person: User) -> list[ShownSubscription]:
    calls = HookCall.objects.order_by("-pk").defer("document")
    active = Subscription.objects.filter(user=person, ended_at=None).select_related("tree", "uarch", "benchmark")
    rows = active.prefetch_related(Prefetch("calls", calls[:_MOST_CALLS], to_attr="last_calls"))
    return [_shown(row) for row in rows.order_by("pk")]


def _shown(row: Subscription) -> ShownSubscription:
    return ShownSubscription(
        id=row.pk,
        wish=wish(row),
        way=Subscription.Way(row.way).label,
        pace=Subscription.Pace(row.pace).label,
        host=urlsplit(row.url).hostname or "",
        url=row.url,
        secret=hook_secret(row) if row.way == Subscription.Way.HOOK else "",
        created_at=row.created_at,
        calls=tuple(_call(call) for call in getattr(row, "last_calls", [])),
    )


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

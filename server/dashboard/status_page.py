"""The status page: what is watched and how it goes, how work gets to hosts, what waits for a person, and which mails
were not used.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.db.models import Count, F, OuterRef, Q, QuerySet, Subquery, Sum, Window
from django.db.models.functions import RowNumber
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from server.builds.models import Build
from server.core import clock
from server.core.access.tries import GivenUp, asked_of_given_up, given_up_rows
from server.core.reasons import Because
from server.core.rows.partitions import caught
from server.core.rows.together import Row, read_together
from server.dashboard import message_page
from server.dashboard.rows import watchers
from server.dashboard.rows.host_status import PowerCycleRow, power_cycle_rows, power_cycles
from server.dashboard.rows.postings import MailRow, mail_rows
from server.dashboard.rows.watchers import Watcher, watcher
from server.detection.noise.profiles import open_questions, question_rows
from server.lab.hosts.tokens import EndingToken, ending_tokens
from server.lab.models import Builder, Host, Machine, PowerCycle, Session
from server.lab.port import Alarm, ControllerStatus, dispatcher
from server.operations.canary import canary_alarm, the_canary
from server.operations.standing import WAITS, standing
from server.results.models import ArchivePart, KeptKind, KeptMonth
from server.sources.models import Branch, Epoch, HeadMove, MailingList, Message, Series, Tree

_SHOWN = 50


@dataclass(frozen=True, slots=True)
class SickHost:
    """A machine or builder that gets no work because of its health."""

    kind: str
    name: str
    health: str
    reason: str
    since: datetime


@dataclass(frozen=True, slots=True)
class OldestRow:
    """What of a kind has waited longest."""

    kind: str
    id: int
    since: datetime
    reason: str


@dataclass(frozen=True, slots=True)
class DispatchStatus:
    """`about` tells by what work goes; `controller` is None where none starts agents."""

    about: str
    controller: ControllerStatus | None
    alarms: tuple[Alarm, ...]
    sick: tuple[SickHost, ...]
    oldest: tuple[OldestRow, ...]
    power_cycles: tuple[PowerCycleRow, ...]


def _asked_of_dispatch() -> "tuple[QuerySet[Any, Any], ...]":
    wanted, planned = (
        Build.objects.filter(state=Build.State.WANTED),
        Session.objects.filter(state=Session.State.PLANNED),
    )
    return (
        _sick(Machine.objects.all()),
        _sick(Builder.objects.all()),
        _oldest(wanted),
        _oldest(planned),
        power_cycles(Q(state__in=PowerCycle.OPEN), _SHOWN),
    )


def dispatch_status(now: datetime, told: Sequence[Sequence[Row]]) -> DispatchStatus:
    """From the answers to what is asked of it."""
    port = dispatcher()
    machines, builders, builds, sessions, cycles = told
    sick = [SickHost(kind, *row) for kind, rows in (("machine", machines), ("builder", builders)) for row in rows]
    oldest = [OldestRow(kind, *row) for kind, rows in (("build", builds), ("session", sessions)) for row in rows]
    return DispatchStatus(
        about=port.about,
        controller=port.controller(),
        alarms=port.alarms(now),
        sick=tuple(sick),
        oldest=tuple(oldest),
        power_cycles=power_cycle_rows(cycles),
    )


def _sick(hosts: "QuerySet[Any, Any]") -> "QuerySet[Any, Any]":
    taken_out = [Host.Health.QUARANTINED, Host.Health.MAINTENANCE, Host.Health.UNKNOWN]
    rows = hosts.filter(enabled=True, health__in=taken_out).order_by("health_since", "name")
    return rows.values_list("name", "health", "health_reason", "health_since")[:_SHOWN]


def _oldest(rows: "QuerySet[Any, Any]") -> "QuerySet[Any, Any]":
    return rows.order_by("state_since", "id").values_list("pk", "state_since", "reason")[:1]


# Branches of one tree on the page, those that moved last; the others are on the page of the tree.
_BRANCHES = 8
_SHOWN_STATUS_PAGE = 30
# Reasons are counted over so many mails, which takes a moment; the most frequent ones are shown.
_COUNTED = 2000
_REASONS = 10
_LATELY = timedelta(days=7)
_WAITING = (Series.State.INCOMPLETE, Series.State.HELD, Series.State.READY)
_REWRITTEN_STAYS = timedelta(days=14)
_EPOCH = ("number", "last_commit", "rewritten_at")


@dataclass(frozen=True, slots=True)
class TreeRow:
    watcher: Watcher
    rebasing: bool
    branches: tuple[watchers.BranchRow, ...]
    living: int
    deleted: int

    @property
    def unshown(self) -> int:
        return self.living - len(self.branches)


@dataclass(frozen=True, slots=True)
class EpochRow:
    number: int
    last_commit: str
    rewritten_at: datetime | None


@dataclass(frozen=True, slots=True)
class ListRow:
    """`last` is the mail that was stored last."""

    watcher: Watcher
    tree: str
    epochs: tuple[EpochRow, ...]
    last: MailRow | None


@dataclass(frozen=True, slots=True)
class HeldRow:
    id: int
    subject: str
    mark: str
    author: str
    mailing_list: str
    reason: str
    since: datetime


@dataclass(frozen=True, slots=True)
class ReasonRow:
    """How many of the newest mails with a reason have this one."""

    kind: str
    kind_label: str
    reason: str
    count: int


@dataclass(frozen=True, slots=True)
class ArchiveRow:
    """What has left the database of one kind, which is kept there for `months` (0: for ever); `held` sessions stay."""

    label: str
    months: int
    sessions: int
    files: int
    bytes: int
    held: int


@dataclass(frozen=True, slots=True)
class Status:
    trees: tuple[TreeRow, ...]
    lists: tuple[ListRow, ...]
    rewritten: tuple[watchers.MoveRow, ...]
    series: tuple[tuple[str, str, int], ...]
    held: tuple[HeldRow, ...]
    held_in_all: int
    unused: tuple[MailRow, ...]
    reasons: tuple[ReasonRow, ...]
    tokens: tuple[EndingToken, ...]
    given_up: tuple[GivenUp, ...]
    caught: tuple[tuple[str, int], ...]
    archive: tuple["ArchiveRow", ...]

    @property
    def watches(self) -> bool:
        """Whether any tree or list is polled."""
        watched = [row.watcher for row in self.trees] + [row.watcher for row in self.lists]
        return any(watcher.enabled for watcher in watched)

    @property
    def alarms(self) -> tuple[Watcher, ...]:
        watched = [row.watcher for row in self.trees] + [row.watcher for row in self.lists]
        return tuple(watcher for watcher in watched if watcher.alarming)


def _asked_of_site(held: "QuerySet[Series]") -> "tuple[QuerySet[Any, Any], ...]":
    lately = Series.shown().exclude(state__in=_WAITING).filter(state_since__gte=clock.now() - _LATELY)
    waiting = Series.shown().filter(state__in=_WAITING)
    return (
        Branch.objects.order_by().values_list("tree_id").annotate(Count("id"), Count("deleted_at")),
        Epoch.objects.order_by("mailing_list_id", "number").values_list("mailing_list", *_EPOCH),
        # Each by an index of its own: those that are over are counted over some days, since they only become more.
        waiting.order_by().values_list("state").annotate(Count("id")),
        lately.order_by().values_list("state").annotate(Count("id")),
        held.order_by().values_list("state").annotate(Count("id")),
        ArchivePart.objects.order_by("kind").values_list("kind").annotate(Count("id"), Sum("size"), Sum("sessions")),
        KeptMonth.objects.order_by().values_list("kind").annotate(Sum("held")),
        ending_tokens(),
        asked_of_given_up(),
    )


def _archive(parts: Sequence[Row], held: Sequence[Row]) -> tuple[ArchiveRow, ...]:
    """A line for each kind that leaves, or has left."""
    stored = {kind: rest for kind, *rest in parts}
    back = dict[Any, Any](held)
    rows = []
    for kind in KeptKind:
        files, size, sessions = stored.get(kind, (0, 0, 0))
        months = settings.KEEP_MONTHS.get(kind, 0)
        if files or months:
            rows.append(ArchiveRow(kind.label, months, sessions, files, int(size), back.get(kind, 0)))
    return tuple(rows)


def _held_series() -> "QuerySet[Series]":
    return Series.shown().filter(state=Series.State.HELD, checked_at__isnull=False).defer("trailers")


def site_status(told: Sequence[Sequence[Row]]) -> Status:
    """From the answers to what is asked of it, and nine queries."""
    branches, epochs, waiting, lately, held_in_all, parts, held_back, tokens, given_up = told
    held = _held_series()
    return Status(
        trees=_trees(branches),
        lists=_lists(epochs),
        rewritten=_rewritten(),
        series=_counts([*waiting, *lately]),
        held=_held(held.select_related("mailing_list").order_by("state_since", "id")[:_SHOWN_STATUS_PAGE]),
        held_in_all=sum(count for _, count in held_in_all),
        unused=mail_rows(_with_reason().exclude(reason_code=Because.COPY).order_by("-id")[:_SHOWN_STATUS_PAGE]),
        reasons=_reasons(),
        tokens=tuple(EndingToken(*row) for row in tokens),
        given_up=tuple(given_up_rows(given_up)),
        caught=tuple(caught().items()),
        archive=_archive(parts, held_back),
    )


def _trees(counted: Sequence[Row]) -> tuple[TreeRow, ...]:
    now = clock.now()
    trees = list(Tree.objects.all())
    counts = {tree: (every - gone, gone) for tree, every, gone in counted}
    place = Window(RowNumber(), partition_by="tree_id", order_by=[F("head_at").desc(nulls_last=True), F("id").asc()])
    living = Branch.objects.filter(deleted_at=None).annotate(place=place).filter(place__lte=_BRANCHES)
    shown = list(living.select_related("head", "tree").order_by("tree_id", "place"))
    rows: dict[int, list[watchers.BranchRow]] = {tree.pk: [] for tree in trees}
    for branch, row in zip(shown, watchers.branch_rows(shown), strict=True):
        rows.setdefault(branch.tree_id, []).append(row)
    return tuple(
        TreeRow(
            watcher=watcher("tree", tree, now),
            rebasing=tree.rebasing,
            branches=tuple(rows[tree.pk]),
            living=counts.get(tree.pk, (0, 0))[0],
            deleted=counts.get(tree.pk, (0, 0))[1],
        )
        for tree in trees
    )


def _lists(told: Sequence[Row]) -> tuple[ListRow, ...]:
    now = clock.now()
    newest = Message.objects.filter(mailing_list=OuterRef("pk")).order_by("-id").values("id")[:1]
    lists = list(MailingList.shown().select_related("tree").annotate(last=Subquery(newest)))
    epochs: dict[int, list[EpochRow]] = {row.pk: [] for row in lists}
    for mailing_list, *epoch in told:
        epochs.setdefault(mailing_list, []).append(EpochRow(*epoch))
    mails = {row.id: row for row in mail_rows(Message.objects.filter(pk__in=[row.last for row in lists if row.last]))}
    return tuple(
        ListRow(
            watcher=watcher("list", row, now),
            tree=row.tree.name if row.tree else "",
            epochs=tuple(epochs[row.pk]),
            last=mails.get(row.last) if row.last else None,
        )
        for row in lists
    )


def _rewritten() -> tuple[watchers.MoveRow, ...]:
    """Branches that lost history lately: forced or deleted."""
    kinds = [HeadMove.Kind.FORCED, HeadMove.Kind.DELETED]
    query = HeadMove.objects.filter(kind__in=kinds, at__gte=clock.now() - _REWRITTEN_STAYS)
    return watchers.move_rows(query.select_related(*watchers.MOVE_PARTS).order_by("-id")[:_SHOWN_STATUS_PAGE])


def _counts(told: Iterable[Row]) -> tuple[tuple[str, str, int], ...]:
    """(state, its label, how many): all that are in a state that waits, and those that came to another one lately."""
    found = Counter({str(state): int(count) for state, count in told})
    return tuple(
        (state, label if state in _WAITING else f"{label}, in {_LATELY.days} days", found[state])
        for state, label in Series.State.choices
    )


def _held(series: Iterable[Series]) -> tuple[HeldRow, ...]:
    return tuple(
        HeldRow(
            id=row.pk,
            subject=row.subject,
            mark=row.mark,
            author=row.author_name or row.author_address,
            mailing_list=row.mailing_list.name,
            reason=row.reason,
            since=row.state_since,
        )
        for row in series
    )


def _with_reason() -> "QuerySet[Message]":
    return Message.shown().exclude(reason_code="")


def _reasons() -> tuple[ReasonRow, ...]:
    """The most frequent ones. Copies over several lists are so many that only here they are worth a line."""
    newest = Counter(_with_reason().order_by("-id").values_list("kind", "reason")[:_COUNTED])
    return tuple(
        ReasonRow(kind, Message.Kind(kind).label, reason, count)
        for (kind, reason), count in newest.most_common(_REASONS)
    )


_GONE = 410


@require_safe
def status(request: HttpRequest) -> HttpResponse:
    now = clock.now()
    of_dispatch, of_site = _asked_of_dispatch(), _asked_of_site(_held_series())
    questions, *told = read_together(open_questions(), *of_dispatch, *of_site)
    end = len(of_dispatch)
    canary = the_canary()
    context = {
        "now": now,
        "status": site_status(told[end:]),
        "dispatch": dispatch_status(now, told[:end]),
        "questions": question_rows(questions),
        "canary": canary,
        "canary_alarm": canary_alarm(canary, now),
    }
    return render(request, "dashboard/status.html", context)


@require_safe
@login_required
def service(request: HttpRequest) -> HttpResponse:
    """What `/metrics` tells, for people: neither is for strangers, and each look asks database, Redis and disk."""
    found = standing()
    waits = [(kind, found.oldest(kind, *states)) for kind, states in WAITS]
    context = {"now": found.at, "standing": found, "waits": waits}
    return render(request, "dashboard/service.html", context)


@require_safe
def message(request: HttpRequest, message_id: int) -> HttpResponse:
    facts = message_page.message_facts(message_id)
    if facts is None:
        raise Http404(f"There is no message {message_id}.")
    return render(request, "dashboard/message.html", {"now": clock.now(), "message": facts})


@require_safe
def message_text(_request: HttpRequest, message_id: int) -> StreamingHttpResponse:
    """What was read of a mail, all of it, to save."""
    row = message_page.raw_mail(message_id)
    if row is None or row.kind == Message.Kind.DELETED:
        raise Http404(f"There is no text of message {message_id}.")
    response = StreamingHttpResponse(message_page.text_pieces(row.pk), content_type="text/plain; charset=utf-8")
    response["X-Content-Type-Options"] = "nosniff"
    response["Content-Disposition"] = f'attachment; filename="message-{row.pk}-text.txt"'
    response["Content-Security-Policy"] = "default-src 'none'; sandbox"
    return response


@require_safe
def raw_message(_request: HttpRequest, message_id: int) -> HttpResponse | StreamingHttpResponse:
    """A mail as it arrived, byte for byte. It is text to save: no browser may take it for a page."""
    row = message_page.raw_mail(message_id)
    if row is None:
        raise Http404(f"There is no message {message_id}.")
    if row.kind == Message.Kind.DELETED:
        return HttpResponse(f"{row.reason}\n", content_type="text/plain; charset=utf-8", status=_GONE)
    response = StreamingHttpResponse(message_page.raw_pieces(row.pk), content_type="text/plain")
    response["Content-Length"] = str(row.size)
    response["X-Content-Type-Options"] = "nosniff"
    response["Content-Disposition"] = f'attachment; filename="message-{row.pk}.txt"'
    response["Content-Security-Policy"] = "default-src 'none'; sandbox"
    return response

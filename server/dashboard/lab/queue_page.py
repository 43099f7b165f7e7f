"""The queue: what runs and what waits, when each is expected to begin and to end, and when a series is judged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from django.db.models import F, Q
from django.db.models.functions import Coalesce
from django.urls import reverse

from server.core import clock
from server.core.rows.together import read_together
from server.dashboard.lab.work_now import SessionNow, sessions_now
from server.dashboard.pictures.small import QueueBar, QueueBars
from server.lab.models import Attempt, Machine, Session
from server.lab.scheduling.forecast import Expected, Forecast, read_forecast
from server.reports.progress import Queue, QueueRow, queue
from server.sources.models import Series, Tree

# Longer lists are told by their beginning.
_SHOWN_SERIES = 30
_SHOWN_BUILDS = 50
_SHOWN_BARS = 24
_LONGEST_NUMBER = 9


@dataclass(frozen=True, slots=True)
class QueueLine:
    row: QueueRow
    expected: Expected


@dataclass(frozen=True, slots=True)
class BuildNow:
    """A kernel that is being built."""

    id: int
    subject: str
    tree: str
    config: str
    builder: str
    progress: str
    since: datetime
    end: datetime | None


@dataclass(frozen=True, slots=True)
class WhenJudged:
    """When a series is expected to be judged: its boots are through by `end`, by `latest` if all looks are taken.

    `why` says what has to happen first where nobody can tell.
    """

    series_id: int
    subject: str
    mark: str
    sessions: int
    end: datetime | None
    latest: datetime | None
    why: str


@dataclass(frozen=True, slots=True)
class QueueFacts:
    lines: tuple[QueueLine, ...]
    waiting: Queue
    sessions: tuple[SessionNow, ...]
    builds: tuple[BuildNow, ...]
    answers: tuple[WhenJudged, ...]
    unanswered: int
    picture: QueueBars
    measured: bool


@dataclass(frozen=True, slots=True)
class WantedQueue:
    """What of the queue is asked for; `unknown` says which filters name nothing, in sentences."""

    tree: str = ""
    machine: str = ""
    series: int | None = None
    unknown: tuple[str, ...] = ()
    named: Mapping[int, str] = field(default_factory=dict)
    machines: tuple[str, ...] = ()

    @property
    def trees(self) -> tuple[str, ...]:
        return tuple(self.named.values())

    @property
    def narrowed(self) -> bool:
        return bool(self.tree or self.machine or self.series)


_KNOWN: Final = 12


def wanted_queue(given: Mapping[str, str]) -> WantedQueue:
    """One query."""
    trees_told, machines_told = read_together(
        Tree.objects.order_by("name").values_list("pk", "name"), Machine.objects.order_by("name").values_list("name")
    )
    named: dict[int, str] = dict(trees_told)
    machines = tuple(name for (name,) in machines_told)
    unknown = []
    found: dict[str, str] = {}
    for kind, names in (("tree", tuple(named.values())), ("machine", machines)):
        name = given.get(kind, "")
        if name in names:
            found[kind] = name
        elif name:
            more = f" and {len(names) - _KNOWN} more" if len(names) > _KNOWN else ""
            unknown.append(f"There is no {kind} “{name[:60]}”; known: {', '.join(names[:_KNOWN]) or 'none'}{more}.")
    number = given.get("series", "").strip()
    series = int(number) if number.isascii() and number.isdecimal() and len(number) <= _LONGEST_NUMBER else None
    if number and series is None:
        unknown.append(f"“{number[:60]}” is no number of a series.")
    return WantedQueue(found.get("tree", ""), found.get("machine", ""), series, tuple(unknown), named, machines)


def queue_facts(wanted: WantedQueue) -> QueueFacts:
    forecast = read_forecast()
    of_series = [one for one in forecast.waiting if wanted.series is None or one.series == wanted.series]
    waiting = queue(wanted.tree, wanted.machine, waiting_now=of_series, trees=wanted.named)
    sessions = sessions_now(_asked(wanted), pace=forecast.pace)
    builds = () if wanted.machine or wanted.series else _builds(forecast, wanted.tree)
    answers = [] if wanted.machine else _answers(forecast, wanted)
    lines = queue_lines(waiting, forecast)
    return QueueFacts(
        lines=lines,
        waiting=waiting,
        sessions=sessions,
        builds=builds,
        answers=tuple(answers[:_SHOWN_SERIES]),
        unanswered=max(0, len(answers) - _SHOWN_SERIES),
        picture=_bars(forecast.now, sessions, builds, lines),
        measured=forecast.pace.measured,
    )


def queue_lines(waiting: Queue, forecast: Forecast) -> tuple[QueueLine, ...]:
    return tuple(QueueLine(row, forecast.of(row.kind, row.id)) for row in waiting.rows)


def _bars(
    now: datetime, sessions: Sequence[SessionNow], builds: Sequence[BuildNow], lines: Sequence[QueueLine]
) -> QueueBars:
    running = [
        QueueBar(
            label=f"{one.machine_name}: {one.what}",
            start=one.since,
            end=one.end,
            kind="runs",
            said=f"session {one.id}, {one.what}: {one.ended} of {one.boots} boots",
            href=reverse("session", args=[one.id]),
        )
        for one in sessions
    ]
    running += [
        QueueBar(
            f"{one.builder}: {one.subject}", one.since, one.end, "runs", one.subject, reverse("build", args=[one.id])
        )
        for one in builds
    ]
    waiting = [
        QueueBar(
            label=f"{line.row.machine or 'a builder'}: {line.row.title}",
            start=line.expected.start or now,
            end=line.expected.end,
            kind="waits",
            said=f"{line.row.kind} {line.row.id}, {line.row.title}: {line.row.why}",
            href=reverse(line.row.kind, args=[line.row.id]),
        )
        for line in lines
        if line.row.kind in ("session", "build")
    ]
    return QueueBars(now, tuple([*running, *waiting][:_SHOWN_BARS]))


def _asked(wanted: WantedQueue) -> Q:
    where = Q(machine__name=wanted.machine) if wanted.machine else Q()
    if wanted.series is not None:
        where &= Q(series=wanted.series) | Q(trial__series=wanted.series)
    if wanted.tree:
        where &= Q(series__base__tree__name=wanted.tree) | Q(trial__base__tree__name=wanted.tree)
    return where


def _builds(forecast: Forecast, tree: str) -> tuple[BuildNow, ...]:
    rows = Attempt.objects.filter(state__in=Attempt.ACTIVE, build__isnull=False).order_by("id")
    rows = rows.filter(build__revision__tree__name=tree) if tree else rows
    fields = ("build__revision__subject", "build__revision__tree__name", "build__config__name", "builder__name")
    named = rows.values_list("build", *fields, "progress", Coalesce("arrived_at", F("created_at")))
    return tuple(
        BuildNow(pk, subject, name, config, builder or "", progress, since, forecast.of("build", pk).end)
        for pk, subject, name, config, builder, progress, since in named[:_SHOWN_BUILDS]
    )


def _answers(forecast: Forecast, wanted: WantedQueue) -> list[WhenJudged]:
    """Those that are expected first come first, those of which nobody can tell last. One query."""
    opened = Session.objects.filter(pk__in=list(forecast.sessions), series__isnull=False).order_by()
    opened = opened.filter(series=wanted.series) if wanted.series else opened
    opened = opened.filter(series__base__tree__name=wanted.tree) if wanted.tree else opened
    by_series: dict[int, tuple[Series, list[Expected]]] = {}
    for session in opened.select_related("series").defer("series__trailers"):
        if session.series is not None:
            by_series.setdefault(session.series.pk, (session.series, []))[1].append(forecast.sessions[session.pk])
    rows = [_answer(series, expected) for series, expected in by_series.values()]
    never = clock.now().replace(year=9999)
    return sorted(rows, key=lambda row: (row.end or never, row.series_id))


def _answer(series: Series, expected: Sequence[Expected]) -> WhenJudged:
    why = next((one.why for one in expected if one.end is None), "")
    ends = [one.end for one in expected if one.end]
    whole = len(ends) == len(expected)
    latest = [one.latest or one.end for one in expected if one.end]
    return WhenJudged(
        series_id=series.pk,
        subject=series.subject,
        mark=series.mark,
        sessions=len(expected),
        end=max(ends) if whole else None,
        latest=max(end for end in latest if end) if whole else None,
        why=why,
    )

"""What is being done at this moment, and when it is expected to end: sessions, series, builds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.db.models import Count, OuterRef, Q, Subquery

from server.builds.models import Build
from server.core import clock
from server.lab.models import Attempt, Boot, Session
from server.lab.scheduling.forecast import (
    BootPace,
    Expected,
    Forecast,
    OpenSession,
    opened_of,
    read_forecast,
    read_pace,
    with_boots,
)
from server.lab.trials.question import purpose_of
from server.reports.progress import SeriesProgress, series_progress
from server.sources.models import Series

_AT_WORK: Final = [Session.State.DISPATCHED, Session.State.RUNNING]


@dataclass(frozen=True, slots=True)
class SessionNow:
    """A session that holds its machine: boots that gave a result of those planned, and when these are through.

    `latest` is when it ends if all its looks are taken, `basis` by what that is known, `progress` its agent's words.
    """

    id: int
    machine: int
    machine_name: str
    what: str
    health: bool
    series_id: int | None
    since: datetime
    begun: bool
    ended: int
    failed: int
    boots: int
    progress: str
    end: datetime | None
    latest: datetime | None
    basis: str

    @property
    def more(self) -> bool:
        """Whether there may be more boots than those that are planned."""
        return self.latest is not None and self.end is not None and self.latest > self.end


def sessions_now(where: Q | None = None, pace: BootPace | None = None) -> tuple[SessionNow, ...]:
    """Those that run or are given to their machine, by machine; one query, and one for a `pace` not given."""
    pace, now = pace or read_pace(), clock.now()
    active = Attempt.objects.filter(session=OuterRef("pk"), state__in=Attempt.ACTIVE)
    rows = (
        with_boots(Session.objects.filter(where or Q(), state__in=_AT_WORK))
        .select_related("series", "trial", "machine")
        .defer("series__trailers")
        .annotate(
            measured=Count("boots", filter=Q(boots__state=Boot.State.MEASURED)),
            failed=Count("boots", filter=Q(boots__state=Boot.State.FAILED)),
            told=Subquery(active.order_by("-id").values("progress")[:1]),
        )
        .order_by("machine__name", "id")
    )
    return tuple(_session_now(row, opened_of(row), pace, now) for row in rows)


def _session_now(row: Any, opened: OpenSession, pace: BootPace, now: datetime) -> SessionNow:
    """`row` counts its boots that measured and that failed, and has what its agent `told`."""
    running = opened.expected(pace, now)
    return SessionNow(
        id=row.pk,
        machine=row.machine_id,
        machine_name=row.machine.name,
        what=purpose_of(row),
        health=row.purpose == Session.Purpose.HEALTH,
        series_id=row.series_id,
        since=row.state_since,
        begun=row.state == Session.State.RUNNING,
        ended=row.measured + row.failed,
        failed=row.failed,
        boots=opened.boots,
        progress=row.told or "",
        end=running.end,
        latest=running.latest,
        basis=pace.basis(row.machine_id),
    )


@dataclass(frozen=True, slots=True)
class SessionProgressLine:
    """One session while it waits or runs, or how it ended. `place` counts from 1, `why` says what it waits for."""

    id: int
    machine: str
    state: str
    state_label: str
    reason: str
    state_since: datetime
    measured: int
    failed: int
    boots: int
    now: SessionNow | None
    expected: Expected
    place: int
    why: str

    @property
    def over(self) -> bool:
        return self.state in Session.FINAL

    @property
    def ended(self) -> int:
        return self.measured + self.failed


def session_line(session_id: int) -> SessionProgressLine | None:
    """Few queries while it runs; one that waits asks for the whole queue."""
    session = Session.objects.select_related("machine").filter(pk=session_id).first()
    if session is None:
        return None
    counts = dict(Boot.objects.filter(session=session).order_by().values_list("state").annotate(Count("pk")))
    return session_line_of(session, counts)


def session_line_of(session: Session, counts: Mapping[str, int]) -> SessionProgressLine:
    """Of one that was read with its machine, and whose boots were counted by state."""
    running = sessions_now(Q(pk=session.pk)) if session.state in _AT_WORK else ()
    expected, place, why = Expected(), 0, ""
    if session.state == Session.State.PLANNED:
        expected, place, why = _waiting(session)
    return SessionProgressLine(
        id=session.pk,
        machine=session.machine.name,
        state=session.state,
        state_label=Session.State(session.state).label,
        reason=session.reason,
        state_since=session.state_since,
        measured=counts.get(Boot.State.MEASURED, 0),
        failed=counts.get(Boot.State.FAILED, 0),
        boots=sum(counts.values()),
        now=running[0] if running else None,
        expected=expected,
        place=place,
        why=why,
    )


def _waiting(session: Session) -> tuple[Expected, int, str]:
    forecast = read_forecast()
    found = next((one for one in forecast.waiting if (one.kind.value, one.id) == ("session", session.pk)), None)
    return forecast.of("session", session.pk), found.position if found else 0, found.reason if found else ""


@dataclass(frozen=True, slots=True)
class SeriesProgressLine:
    """How far a series came, in one line. `judged` is when its boots are expected to be through, `latest` if all looks
    are taken; `blocked` says why nobody can tell that.
    """

    series_id: int
    progress: SeriesProgress
    judged: datetime | None
    latest: datetime | None
    not_before: datetime | None
    blocked: tuple[str, ...]

    @property
    def over(self) -> bool:
        """Nothing moves before a person does something."""
        return self.progress.state != "running"

    @property
    def boots(self) -> tuple[int, int]:
        """(with a result, planned) on all its machines."""
        rows = self.progress.stage("sessions").sessions
        ended = sum(row.measured + row.failed for row in rows)
        return ended, ended + sum(row.planned for row in rows)


def series_line(series: Series) -> SeriesProgressLine:
    progress = series_progress(series)
    line = SeriesProgressLine(series.pk, progress, None, None, None, ())
    if progress.state != "running" or progress.current.name not in ("builds", "sessions"):
        return line
    sessions = list(Session.objects.filter(series=series, state__in=Session.OPEN).values_list("pk", flat=True))
    forecast = read_forecast()
    builds = [one.build for one in progress.stage("builds").builds if one.build in forecast.builds]
    return _foreseen(line, forecast, sessions, [pk for pk in builds if pk is not None])


def _foreseen(
    line: SeriesProgressLine, forecast: Forecast, sessions: Sequence[int], builds: Sequence[int]
) -> SeriesProgressLine:
    awaited = [forecast.of("session", pk) for pk in sessions]
    kernels = [forecast.of("build", pk) for pk in builds]
    known: Mapping[bool, list[Expected]] = {
        side: [one for one in (*awaited, *kernels) if (one.end is not None) is side] for side in (True, False)
    }
    ends = [one.end for one in awaited if one.end]
    latest = [one.latest or one.end for one in awaited if one.end]
    complete = bool(ends) and not builds and not known[False]
    return SeriesProgressLine(
        series_id=line.series_id,
        progress=line.progress,
        judged=max(ends) if complete else None,
        latest=max(end for end in latest if end) if complete else None,
        not_before=None if complete else max((one.end for one in known[True] if one.end), default=None),
        blocked=tuple(dict.fromkeys(one.why for one in known[False] if one.why)),
    )


@dataclass(frozen=True, slots=True)
class BuildLine:
    """One kernel on its way; `place` counts from 1 among the builds that wait."""

    id: int
    state: str
    state_label: str
    state_since: datetime
    reason: str
    builder: str
    progress: str
    expected: Expected
    place: int
    why: str

    @property
    def over(self) -> bool:
        return self.state not in _BUILDS


_BUILDS: Final = (Build.State.WANTED, Build.State.DISPATCHED, Build.State.RUNNING)


def build_line(build_id: int) -> BuildLine | None:
    build = Build.objects.filter(pk=build_id).only("state", "state_since", "reason").first()
    if build is None:
        return None
    expected, found, told = Expected(), None, None
    if build.state in _BUILDS:
        forecast = read_forecast()
        expected = forecast.of("build", build.pk)
        found = next((one for one in forecast.waiting if (one.kind.value, one.id) == ("build", build.pk)), None)
        active = Attempt.objects.filter(build=build, state__in=Attempt.ACTIVE).order_by("-id")
        told = active.values_list("builder__name", "progress").first()
    return BuildLine(
        id=build.pk,
        state=build.state,
        state_label=Build.State(build.state).label,
        state_since=build.state_since,
        reason=build.reason,
        builder=(told[0] or "") if told else "",
        progress=told[1] if told else "",
        expected=expected,
        place=found.position if found else 0,
        why=found.reason if found else "",
    )


@dataclass(frozen=True, slots=True)
class BuildsNow:
    """How many kernels are being built and wait: why machines have nothing to boot, or will have."""

    building: int
    waiting: int


def builds_now() -> BuildsNow:
    """One query."""
    counted = Build.objects.filter(state__in=_BUILDS).order_by().values_list("state").annotate(Count("pk"))
    found = dict(counted)
    waiting = found.pop(Build.State.WANTED, 0)
    return BuildsNow(sum(found.values()), waiting)

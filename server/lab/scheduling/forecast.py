"""When work is expected to begin and to end: durations that were measured, laid along the queue.

It is a guess for people and decides nothing. What waits for a person, or for a machine that is sick, gets no time.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, F, Min, Q, QuerySet
from django.db.models.functions import Coalesce

from server.builds.models import BuildState
from server.core import clock
from server.core.rows.together import Row, read_together
from server.lab.models import Attempt, AttemptState, BootStart, BootState, Session, SessionState
from server.lab.port import WorkKind, dispatcher
from server.lab.scheduling.decision import builder_trouble, lasting_trouble
from server.lab.scheduling.placement import Waiting, queue_in_order
from server.lab.scheduling.reader import read_snapshot_with, seconds_held
from server.lab.scheduling.snapshot import Snapshot, WaitingBuild, WaitingSession

_LATELY = timedelta(days=7)
# Fewer boots say little of how long the next one takes.
_LEAST_BOOTS = 2
# Until this site has its own figures: half an hour for a session of eight boots.
_USUAL_BOOT_SECONDS = 225.0
_POWER_CYCLE = timedelta(minutes=5)


@dataclass(frozen=True)
class BootPace:
    """Seconds that one boot takes, with all that is between boots: on each machine, and on the site's others."""

    machines: Mapping[int, float] = field(default_factory=dict)
    usual: float = _USUAL_BOOT_SECONDS
    measured: bool = False

    def of(self, machine: int) -> float:
        return self.machines.get(machine, self.usual)

    def basis(self, machine: int) -> str:
        """By what it is known, for people."""
        if machine in self.machines:
            return f"by its boots of the last {_LATELY.days} days"
        return "by the boots of other machines" if self.measured else "a guess: no session has ended lately"


def read_pace() -> BootPace:
    """From the sessions that ended lately; one query."""
    now = clock.now()
    return _pace(*read_together(*_ended(now)))


def _ended(now: datetime) -> "tuple[QuerySet[Any, Any], QuerySet[Any, Any]]":
    """Of each machine: how long sessions held it, and how many boots they had."""
    lately = {"state": AttemptState.DONE, "state_since__gt": now - _LATELY, "session__isnull": False}
    ended = Attempt.objects.filter(**lately, machine__isnull=False).exclude(agent="").order_by()
    begun = BootStart.objects.filter(**{f"attempt__{name}": value for name, value in lately.items()}).order_by()
    spent = ended.values_list("machine").annotate(spent=seconds_held(now))
    return spent, begun.values_list("attempt__machine").annotate(Count("pk"))


def _pace(held: Sequence[Row], begun: Sequence[Row]) -> BootPace:
    spent: dict[int, timedelta] = dict(held)
    boots: dict[int, int] = dict(begun)
    each = {
        machine: max(1.0, seconds.total_seconds() / boots[machine])
        for machine, seconds in spent.items()
        if boots.get(machine, 0) >= _LEAST_BOOTS
    }
    if not each:
        return BootPace()
    total = sum(spent[machine].total_seconds() for machine in each)
    return BootPace(each, max(1.0, total / sum(boots[machine] for machine in each)), measured=True)


@dataclass(frozen=True)
class OpenSession:
    """A session that is not over: how many boots it has and how many of them are left, and since when one runs.

    `most` is how many it can get if its looks tell nothing; `unbuilt` are kernels of it that are not there.
    """

    id: int
    machine: int
    waits: bool
    boots: int
    left: int
    most: int
    booting_since: datetime | None
    unbuilt: tuple[int, ...] = ()

    def seconds_left(self, pace: BootPace, now: datetime) -> float:
        each = pace.of(self.machine)
        if self.booting_since is None:
            return self.left * each
        # A boot that takes longer than usual may end at any moment.
        return max(0.0, each - (now - self.booting_since).total_seconds()) + (self.left - 1) * each

    def expected(self, pace: BootPace, now: datetime) -> "Expected":
        """Of one that is under way."""
        end = now + timedelta(seconds=self.seconds_left(pace, now))
        more = timedelta(seconds=pace.of(self.machine) * (self.most - self.boots))
        return Expected(start=now, end=end, latest=end + more)


def with_boots(sessions: "QuerySet[Session]") -> "QuerySet[Any, Any]":
    """With what `opened_of` needs to know of their boots."""
    begun = Coalesce("boots__started_at", "boots__state_since")
    return sessions.annotate(
        boots_in_all=Count("boots"),
        boots_left=Count("boots", filter=Q(boots__state__in=[BootState.PLANNED, BootState.RUNNING])),
        booting_since=Min(begun, filter=Q(boots__state=BootState.RUNNING)),
    )


def opened_of(row: Any, unbuilt: tuple[int, ...] = ()) -> OpenSession:
    return OpenSession(
        id=row.pk,
        machine=row.machine_id,
        waits=row.state == SessionState.PLANNED,
        boots=row.boots_in_all,
        left=row.boots_left,
        most=max(row.boots_in_all, 2 * row.looks[-1]) if row.looks else row.boots_in_all,
        booting_since=row.booting_since,
        unbuilt=unbuilt,
    )


_KERNELS = ("base_build", "patched_build")
_OPEN_FIELDS = ("machine_id", "state", "looks", *_KERNELS, *(f"{kernel}__state" for kernel in _KERNELS))


def open_sessions() -> tuple[OpenSession, ...]:
    """All of them; one query."""
    rows = Session.objects.filter(state__in=Session.OPEN).order_by().select_related(*_KERNELS).only(*_OPEN_FIELDS)
    return tuple(opened_of(row, _unbuilt(row)) for row in with_boots(rows))


def _unbuilt(row: Session) -> tuple[int, ...]:
    kernels = (row.base_build, row.patched_build)
    return tuple(dict.fromkeys(build.pk for build in kernels if build.state != BuildState.BUILT))


@dataclass(frozen=True)
class Expected:
    """`end` is that of the boots which are planned; `latest` if all its looks are taken. None: nobody can tell.

    `why` says then what has to happen first.
    """

    start: datetime | None = None
    end: datetime | None = None
    latest: datetime | None = None
    why: str = ""


@dataclass(frozen=True)
class Forecast:
    """By id. `pace` is what it was made with."""

    now: datetime
    pace: BootPace
    sessions: Mapping[int, Expected]
    builds: Mapping[int, Expected]
    waiting: tuple[Waiting, ...]

    def of(self, kind: str, pk: int) -> Expected:
        known = {WorkKind.SESSION.value: self.sessions, WorkKind.BUILD.value: self.builds}
        return known.get(kind, {}).get(pk, Expected())


def read_forecast() -> Forecast:
    """Of all that waits and all that runs; one query beside those of the snapshot."""
    now = clock.now()
    snapshot, (held, begun, building) = read_snapshot_with(now, *_ended(now), _building())
    waiting = queue_in_order(snapshot)
    pace = _pace(held, begun)
    sessions = {one.id: one for one in open_sessions()}
    lanes = _Lanes(snapshot.now, dispatcher().slots)
    expected: dict[int, Expected] = {}
    cycling = [one.id for one in snapshot.machines.values() if one.cycling]
    free = dict.fromkeys(cycling, snapshot.now + _POWER_CYCLE)
    for session in sessions.values():
        if not session.waits:
            expected[session.id] = running = session.expected(pace, snapshot.now)
            free[session.machine] = lanes.hold(running.end or snapshot.now)
    builds = _builds(snapshot, waiting, lanes, building)
    rows = {one.id: one for one in snapshot.sessions}
    for one in waiting:
        if one.kind is WorkKind.SESSION and one.id in sessions:
            session = sessions[one.id]
            kernels = [builds.get(pk, Expected()).end for pk in session.unbuilt]
            why = _kept(snapshot, rows[one.id], one, lanes, kernels)
            earliest = [free.get(session.machine, snapshot.now), rows[one.id].due, *(end for end in kernels if end)]
            expected[one.id] = Expected(why=why) if why else _laid(session, pace, max(earliest), lanes)
            free[session.machine] = expected[one.id].end or free.get(session.machine, snapshot.now)
    return Forecast(snapshot.now, pace, expected, builds, waiting)


def _kept(
    snapshot: Snapshot, row: WaitingSession, waiting: Waiting, lanes: "_Lanes", kernels: Iterable[datetime | None]
) -> str:
    """Why nobody can say when it begins; empty if that only takes time."""
    if lanes.closed or lasting_trouble(snapshot, row):
        return waiting.reason
    return "" if all(kernels) else "a kernel of it comes first, and nobody can say when that is built"


def _laid(session: OpenSession, pace: BootPace, earliest: datetime, lanes: "_Lanes") -> Expected:
    each = pace.of(session.machine)
    seconds = timedelta(seconds=each * session.left)
    start = lanes.take(earliest, seconds)
    more = timedelta(seconds=each * (session.most - session.boots))
    return Expected(start, start + seconds, start + seconds + more)


class _Lanes:
    """How much a dispatcher of limited capacity runs at a time; one without limit is never in the way."""

    def __init__(self, now: datetime, slots: int | None) -> None:
        self.closed = slots == 0
        self._ends = [now] * (slots or 0)

    def hold(self, until: datetime) -> datetime:
        """What runs already keeps one until then."""
        if self._ends:
            heapq.heapreplace(self._ends, max(self._ends[0], until))
        return until

    def take(self, earliest: datetime, seconds: timedelta) -> datetime:
        """When work that can begin then gets one."""
        if not self._ends:
            return earliest
        start = max(earliest, self._ends[0])
        heapq.heapreplace(self._ends, start + seconds)
        return start


def _building() -> "QuerySet[Any, Any]":
    active = Attempt.objects.filter(state__in=Attempt.ACTIVE, build__isnull=False).order_by()
    return active.values_list("build", "builder", Coalesce("arrived_at", F("created_at")))


def _builds(
    snapshot: Snapshot, waiting: Iterable[Waiting], lanes: _Lanes, building: Iterable[Row]
) -> dict[int, Expected]:
    each = timedelta(seconds=snapshot.on_builders.expected)
    busy: dict[int, list[datetime]] = defaultdict(list)
    found: dict[int, Expected] = {}
    for build, builder, since in building:
        found[build] = Expected(since, end := max(since + each, snapshot.now))
        busy[builder or 0].append(lanes.hold(end))
    slots = {
        one.id: (sorted(busy[one.id]) + [snapshot.now] * one.capacity)[-max(one.capacity, len(busy[one.id])) :]
        for one in snapshot.builders.values()
        if not builder_trouble(one)
    }
    for ends in slots.values():
        heapq.heapify(ends)
    rows = {one.id: one for one in snapshot.builds}
    for one in waiting:
        if one.kind is WorkKind.BUILD:
            found[one.id] = _built(snapshot, rows[one.id], slots, lanes, each) or Expected(why=one.reason)
    return found


def _built(
    snapshot: Snapshot, build: WaitingBuild, slots: Mapping[int, list[datetime]], lanes: _Lanes, each: timedelta
) -> Expected | None:
    able = [pk for pk in slots if snapshot.builders[pk].can(build)]
    if lanes.closed or not able:
        return None
    soonest = min(able, key=lambda pk: slots[pk][0])
    start = lanes.take(max(slots[soonest][0], build.due, snapshot.now), each)
    heapq.heapreplace(slots[soonest], start + each)
    return Expected(start, start + each)

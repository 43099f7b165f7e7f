"""Reads the snapshot: three statements of plain values, whatever waits."""

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import (
    Case,
    Count,
    DateTimeField,
    DurationField,
    ExpressionWrapper,
    F,
    FloatField,
    IntegerField,
    Max,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Sum,
    Value,
    When,
)
from django.db.models.functions import Cast, Coalesce, Extract

from server.builds.models import Build, BuildState
from server.core import clock
from server.core.rows.together import Row, read_together
from server.lab.models import (
    Attempt,
    AttemptState,
    Boot,
    BootState,
    Builder,
    Machine,
    PowerCycle,
    PowerCycleState,
    Session,
    SessionState,
    Trial,
    TrialState,
    builds_at_work,
)
from server.lab.port import dispatcher
from server.lab.scheduling.decision import weight_of
from server.lab.scheduling.snapshot import (
    KnownBuilder,
    KnownMachine,
    Snapshot,
    Spent,
    WaitingBuild,
    WaitingCycle,
    WaitingSession,
)
from server.lab.work import LOCAL_BUILDER
from server.sources.models import Series, SeriesState, Tree


def tree_of(prefix: str = "") -> Coalesce:
    """The tree whose share a session uses up, 0 for none: a machine's own check. `prefix` leads to the session."""
    return Coalesce(f"{prefix}series__base__tree", f"{prefix}trial__base__tree", Value(0), output_field=IntegerField())


def asker_of(prefix: str = "") -> Coalesce:
    """The series that a session is of, whatever its trial asks about it.

    A trial of no series stands for itself, as a negative number; 0 for a machine's own check.
    """
    own = F(f"{prefix}trial") * Value(-1)
    return Coalesce(f"{prefix}series", f"{prefix}trial__series", own, Value(0), output_field=IntegerField())


LONGEST_WAIT_SECONDS = 60
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
_ENDED = [BootState.MEASURED, BootState.FAILED]


class Delay(NamedTuple):
    """When work may go again, after so many attempts in vain."""

    due: datetime
    fruitless: int


def due_at(since: datetime, fruitless: int) -> datetime:
    """When work that waits since then may go."""
    return since + timedelta(seconds=min(2 ** (fruitless - 1), LONGEST_WAIT_SECONDS)) if fruitless else since


def _recent(now: datetime) -> datetime:
    """What came back before then is due however often it was tried: nothing needs to be counted."""
    return now - timedelta(seconds=LONGEST_WAIT_SECONDS)


def _delays(rows: Iterable[Row]) -> dict[int, Delay]:
    return {pk: Delay(due_at(since, fruitless), fruitless) for pk, since, fruitless in rows}


def _delayed_sessions(now: datetime) -> "QuerySet[Any, Any]":
    """Planned sessions that came back just now, by the attempts since their last boot with a result."""
    ended = Boot.objects.filter(session=OuterRef("session"), state__in=_ENDED).order_by().values("session")
    last = Subquery(ended.annotate(last=Max("state_since")).values("last"), output_field=DateTimeField())
    # Work comes back in the transaction that ends its attempt: by that it is found without reading every attempt.
    back = Attempt.objects.filter(session__isnull=False, state_since__gt=_recent(now)).values("session")
    attempts = Attempt.objects.filter(session__in=back, session__state=SessionState.PLANNED)
    counted = attempts.filter(created_at__gt=Coalesce(last, Value(_LONG_AGO)))
    return counted.order_by().values_list("session", "session__state_since").annotate(Count("pk"))


def _delayed_builds(now: datetime) -> "QuerySet[Any, Any]":
    """Wanted builds that came back just now, by the attempts for their present cause."""
    attempts = Attempt.objects.filter(
        build__state=BuildState.WANTED, build__state_since__gt=_recent(now), trace=F("build__trace")
    )
    return attempts.order_by().values_list("build", "build__state_since").annotate(Count("pk"))


def _delayed_cycles(now: datetime) -> "QuerySet[Any, Any]":
    attempts = Attempt.objects.filter(
        power_cycle__state=PowerCycleState.WANTED, power_cycle__state_since__gt=_recent(now)
    )
    rows = attempts.order_by().values_list("power_cycle", "power_cycle__state_since")
    return rows.annotate(Count("pk"))


# Fair share looks back so far: long enough for a night's sessions to count, short enough to be forgiven.
WINDOW = timedelta(hours=24)
# A builder's work tree and compiler cache stay warm for longer than a day: they are pruned by size, not by age.
_WARM = timedelta(days=7)
# Until this site has its own figures.
_USUAL_SESSION_SECONDS = 1800.0
_USUAL_BUILD_SECONDS = 600.0


def _held_machines(now: datetime) -> "QuerySet[Any, Any]":
    # What the service does with machines for itself is no tree's.
    own = Q(session__purpose=Session.Purpose.HEALTH) | Q(session__trial__purpose=Trial.Purpose.NOISE)
    asked = _claimed(now).filter(machine__isnull=False).exclude(own)
    grouped = asked.annotate(tree=tree_of("session__"), asker=asker_of("session__")).values_list("tree", "asker")
    return grouped.annotate(count=Count("pk"), spent=seconds_held(now))


def _on_machines(rows: Sequence[Row]) -> Spent:
    """Seconds of machines by tree, and by series or trial of no series."""
    trees: dict[int, float] = {}
    askers: dict[int, float] = {}
    for tree, asker, _count, spent in rows:
        seconds = max(0.0, spent.total_seconds())
        trees[tree] = trees.get(tree, 0.0) + seconds
        askers[asker] = askers.get(asker, 0.0) + seconds
    return Spent(trees, askers, _mean(trees, sum(row[2] for row in rows), _USUAL_SESSION_SECONDS))


def _held_builders(now: datetime) -> "QuerySet[Any, Any]":
    grouped = _claimed(now).filter(build__isnull=False).values_list("build__revision__tree")
    return grouped.annotate(count=Count("pk"), spent=seconds_held(now))


def _on_builders(rows: Sequence[Row]) -> Spent:
    """Seconds of builders by tree; one build serves many series, so that none of them is charged for it."""
    found = [(tree, count, max(0.0, spent.total_seconds())) for tree, count, spent in rows]
    trees = {tree: seconds for tree, _count, seconds in found}
    return Spent(trees, {}, _mean(trees, sum(count for _tree, count, _seconds in found), _USUAL_BUILD_SECONDS))


def _made(now: datetime) -> "QuerySet[Any, Any]":
    made = Attempt.objects.filter(
        build__isnull=False, builder__isnull=False, state=AttemptState.DONE, state_since__gt=now - _WARM
    )
    by = ("build__revision__tree", "build__config", "builder")
    return made.order_by().values_list(*by).annotate(last=Max("pk")).order_by("last")


def _warm(rows: Sequence[Row]) -> dict[tuple[int, int], int]:
    """The builder that made a tree's kernel in a configuration last, by tree and configuration."""
    return {(tree, config): builder for tree, config, builder, _last in rows}


def _claimed(now: datetime) -> "QuerySet[Attempt]":
    within = Q(state__in=Attempt.ACTIVE) | Q(state_since__gt=now - WINDOW)
    return Attempt.objects.filter(within).exclude(agent="").order_by()


def seconds_held(now: datetime) -> Sum:
    """How long the attempts of a group held their hosts; those that still do, until now."""
    end = Case(When(state__in=Attempt.ACTIVE, then=Value(now)), default=F("state_since"))
    return Sum(ExpressionWrapper(end - Coalesce("arrived_at", "created_at"), output_field=DurationField()))


def _mean(seconds: Mapping[int, float], number: int, usual: float) -> float:
    """A second at least: what costs nothing would be given out without end."""
    return max(1.0, sum(seconds.values()) / number) if number else usual


_SESSION = ("pk", "machine_id", "tree", "asker", "priority", "created", "deadline", "purpose")
_BUILD = ("pk", "revision__tree_id", "state_since", "arch", "toolchain__name", "config_id", "tree_sha")
_NOTHING: frozenset[str] = frozenset()


def marks_of_sessions(now: datetime) -> "tuple[QuerySet[Any, Any], ...]":
    """What only few planned sessions have, of which there may be thousands: to be read together."""
    planned = Session.objects.filter(state=SessionState.PLANNED).order_by()
    # A kernel whose files were removed is being built again (lab/sweep.py): its sessions wait for it.
    built = {"base_build__state": BuildState.BUILT, "patched_build__state": BuildState.BUILT}
    held = Machine.objects.filter(health=Machine.Health.QUARANTINED).exclude(health_hold="")
    equal = planned.filter(machine__in=held.order_by(), trial__purpose=Trial.Purpose.NOISE)
    needs = planned.exclude(needs=[]).values_list("pk", "needs")
    return _delayed_sessions(now), needs, planned.exclude(**built).values_list("pk"), equal.values_list("pk")


def waiting_sessions(priorities: Mapping[int, int], marks: Sequence[Sequence[Row]]) -> tuple[WaitingSession, ...]:
    """All planned sessions, in no order; one query. `priorities` are those of the trees, `marks` of the sessions."""
    back, needing, lacking, equal = marks
    delays, needs = _delays(back), {pk: frozenset(words) for pk, words in needing}
    unbuilt, trying = {pk for (pk,) in lacking}, {pk for (pk,) in equal}
    planned = Session.objects.filter(state=SessionState.PLANNED).order_by()
    health = str(Session.Purpose.HEALTH)
    rows = planned.annotate(
        tree=tree_of(), asker=asker_of(), created=_as_seconds("created_at"), deadline=_as_seconds("deadline_at")
    ).values_list(*_SESSION)
    return tuple(
        WaitingSession(
            pk,
            machine,
            tree,
            asker,
            priority + priorities.get(tree, 0),
            since := _moment(created),
            delays[pk].due if pk in delays else since,
            _moment(deadline) if deadline else None,
            purpose == health,
            needs.get(pk, _NOTHING),
            delays[pk].fruitless if pk in delays else 0,
            pk not in unbuilt,
            pk in trying,
        )
        for pk, machine, tree, asker, priority, created, deadline, purpose in rows
    )


def _as_seconds(field: str) -> Cast:
    """A moment as seconds: Django reads those ten times as fast as moments with a zone."""
    return Cast(Extract(field, "epoch"), FloatField())


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _waiting_builds(priorities: Mapping[int, int], now: datetime, rows: Sequence[Row]) -> tuple[WaitingBuild, ...]:
    """All wanted builds, in no order. One query where there are any."""
    if not rows:
        return ()
    back, based, headed, trials = read_together(_delayed_builds(now), *_lacking_series(), _wanted_trials())
    delays = _delays(back)
    lacking = _lacking({row[-1] for row in rows}, {*map(tuple, based), *map(tuple, headed)})
    asked = _trial_priorities(trials, lacking)
    waiting = []
    for pk, tree, since, arch, toolchain, config, tree_sha in rows:
        stage, series, base = lacking.get(tree_sha, (1, 0, False))
        due, tried = delays.get(pk, (since, 0))
        priority = priorities.get(tree, 0) + asked.get(tree_sha, 0)
        waiting.append(
            WaitingBuild(pk, tree, series, priority, since, due, arch, toolchain, config, stage, base, tried)
        )
    return tuple(waiting)


def _wanted_trials() -> "QuerySet[Any, Any]":
    trials = Trial.objects.filter(state=TrialState.WANTED).exclude(priority=0).order_by()
    return trials.values_list("priority", "base__tree_sha", "patched__tree_sha")


def _trial_priorities(trials: Iterable[Row], of_series: Container[str]) -> dict[str, int]:
    """By source tree the highest priority of the trials that wait for it; not below that of a series that does, too."""
    found: dict[str, int] = {}
    for priority, *trees in trials:
        for tree_sha in trees:
            found[tree_sha] = max(priority, found.get(tree_sha, 0 if tree_sha in of_series else priority))
    return found


def _lacking_series() -> "tuple[QuerySet[Any, Any], QuerySet[Any, Any]]":
    """Those whose base, and those whose head is wanted, each by an index: with OR over both, every series is read."""
    waiting = Build.objects.filter(state=BuildState.WANTED).order_by().values("tree_sha")
    applied = Series.objects.filter(state=SeriesState.APPLIED).order_by()
    fields = ("pk", "base__tree_sha", "head__tree_sha")
    based, headed = (applied.filter(**{f"{end}__tree_sha__in": waiting}) for end in ("base", "head"))
    return based.values_list(*fields), headed.values_list(*fields)


def _lacking(wanted: set[str], rows: Iterable[Row]) -> dict[str, tuple[int, int, bool]]:
    """For the source tree of each wanted build: how many kernels its series lacks, which series, whether as its base.

    Of several series that one which lacks the fewest: its sessions can begin the soonest.
    """
    found: dict[str, list[tuple[int, int, bool]]] = defaultdict(list)
    for series, base, head in rows:
        stage = len({base, head} & wanted)
        for tree_sha in {base, head} & wanted:
            found[tree_sha].append((stage, series, tree_sha == base))
    return {tree_sha: min(series) for tree_sha, series in found.items()}


class _Told(NamedTuple):
    """Rows, each list of its own question."""

    trees: Sequence[Row]
    machines: Sequence[Row]
    busy: Sequence[Row]
    cycling: Sequence[Row]
    builders: Sequence[Row]
    made: Sequence[Row]
    held_machines: Sequence[Row]
    held_builders: Sequence[Row]
    cycles: Sequence[Row]
    delayed_cycles: Sequence[Row]
    builds: Sequence[Row]


def _told(
    now: datetime, more: "Sequence[QuerySet[Any, Any]]"
) -> tuple[_Told, Sequence[Sequence[Row]], Sequence[Sequence[Row]]]:
    """With the marks of sessions, and the rows of `more`."""
    busy = Attempt.objects.filter(state__in=Attempt.ACTIVE, machine__isnull=False).order_by()
    opened = PowerCycle.objects.filter(state__in=PowerCycle.OPEN).order_by()
    wanted = PowerCycle.objects.filter(state=PowerCycleState.WANTED)
    marks = marks_of_sessions(now)
    told = read_together(
        Tree.objects.order_by().values_list("pk", "priority"),
        Machine.objects.order_by().values_list(*_MACHINE),
        busy.values_list("machine", "key"),
        opened.values_list("machine"),
        _own_builders(),
        _made(now),
        _held_machines(now),
        _held_builders(now),
        wanted.values_list("pk", "machine_id", "created_at"),
        _delayed_cycles(now),
        Build.objects.filter(state=BuildState.WANTED).order_by().values_list(*_BUILD),
        *marks,
        *more,
    )
    end = len(told) - len(more)
    own = end - len(marks)
    return _Told(*told[:own]), told[own:end], told[end:]


def read_snapshot(*, free_slots: int | None = None) -> Snapshot:
    """What waits, which hosts there are, and what each tree had in the last day."""
    return read_snapshot_with(clock.now(), free_slots=free_slots)[0]


def read_snapshot_with(
    now: datetime, *more: "QuerySet[Any, Any]", free_slots: int | None = None
) -> tuple[Snapshot, Sequence[Sequence[Row]]]:
    """The rows of `more`, lists of values, are read with it."""
    told, marks, rows = _told(now, more)
    priorities: dict[int, int] = dict(told.trees)
    snapshot = Snapshot(
        now=now,
        sessions=waiting_sessions(priorities, marks),
        builds=_waiting_builds(priorities, now, told.builds),
        cycles=_cycles(told.cycles, _delays(told.delayed_cycles)),
        machines=_machines(told.machines, dict(told.busy), {machine for (machine,) in told.cycling}),
        builders=_builders(told.builders),
        warm=_warm(told.made),
        weights={tree: weight_of(priority) for tree, priority in priorities.items()},
        on_machines=_on_machines(told.held_machines),
        on_builders=_on_builders(told.held_builders),
        free_slots=free_slots,
        all_slots=1 if free_slots is None else dispatcher().slots or 1,
    )
    return snapshot, rows


def _cycles(wanted: Iterable[Row], delays: Mapping[int, Delay]) -> tuple[WaitingCycle, ...]:
    return tuple(
        WaitingCycle(pk, machine, created_at, *delays.get(pk, (created_at, 0))) for pk, machine, created_at in wanted
    )


_HEALTH = ("health", "health_reason", "health_hold")
_MACHINE = ("pk", "name", "enabled", "state", "state_reason", "clock", "capabilities", *_HEALTH)


def _machines(rows: Iterable[Row], busy: Mapping[int, str], cycling: Container[int]) -> dict[int, KnownMachine]:
    return {
        pk: KnownMachine(
            id=pk,
            name=name,
            enabled=enabled,
            health=health,
            health_reason=health_reason,
            held=health == Machine.Health.QUARANTINED and hold != "",
            state=state,
            state_reason=state_reason,
            busy=busy.get(pk, ""),
            cycling=pk in cycling,
            alone=ticks == Machine.Clock.WALL,
            capabilities=frozenset(capabilities),
        )
        for pk, name, enabled, state, state_reason, ticks, capabilities, health, health_reason, hold in rows
    }


def known_machine(machine: Machine, *, cycling: bool) -> KnownMachine:
    """One that was read as a row, and that no attempt holds."""
    return KnownMachine(
        id=machine.pk,
        name=machine.name,
        enabled=machine.enabled,
        health=machine.health,
        health_reason=machine.health_reason,
        held=machine.is_held,
        state=machine.state,
        state_reason=machine.state_reason,
        cycling=cycling,
        alone=machine.clock == Machine.Clock.WALL,
        capabilities=frozenset(machine.capabilities),
    )


_STATE = ("enabled", "health", "health_reason", "state", "state_reason")
_BUILDER = ("pk", "name", *_STATE, "capacity", "busy", "arches", "toolchains")


def _own_builders() -> "QuerySet[Any, Any]":
    """The builders that this site's dispatcher reaches: this host itself, or the nodes of its controller."""
    here = Q(name=LOCAL_BUILDER)
    own = Builder.objects.filter(here if dispatcher().is_local else ~here)
    return own.annotate(busy=builds_at_work()).values_list(*_BUILDER)


def _builders(rows: Iterable[Row]) -> dict[int, KnownBuilder]:
    return {pk: _builder(dict(zip(_BUILDER[1:], told, strict=True)), pk) for pk, *told in rows}


def _builder(told: dict[str, Any], pk: int) -> KnownBuilder:
    several = {name: frozenset(told[name]) for name in ("arches", "toolchains")}
    return KnownBuilder(**{**told, **several, "id": pk})

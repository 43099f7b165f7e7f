"""Reads what waits: planned sessions and wanted builds."""

from collections import defaultdict
from collections.abc import Collection, Container, Mapping
from datetime import UTC, datetime

from django.db.models import FloatField
from django.db.models.functions import Cast, Extract

from server.builds.models import Build, BuildState
from server.lab.models import Session, SessionState, Trial, TrialState
from server.lab.scheduling.askers import asker_of, tree_of
from server.lab.scheduling.backoff import delayed_builds, delayed_sessions
from server.lab.scheduling.snapshot import WaitingBuild, WaitingSession
from server.sources.models import Series, SeriesState

_SESSION = ("pk", "machine_id", "tree", "asker", "priority", "created", "deadline", "purpose")
_BUILD = ("pk", "revision__tree_id", "state_since", "arch", "toolchain__name", "config_id", "tree_sha")
_NOTHING: frozenset[str] = frozenset()
_NOBODY: frozenset[int] = frozenset()


def waiting_sessions(
    priorities: Mapping[int, int], now: datetime, held: Collection[int] = ()
) -> tuple[WaitingSession, ...]:
    """All planned sessions, in no order. `priorities` are those of the trees, `held` machines held in quarantine.

    There are thousands of rows: what only few have is read by queries of its own.
    """
    delays = delayed_sessions(now)
    planned = Session.objects.filter(state=SessionState.PLANNED).order_by()
    needs = {pk: frozenset(words) for pk, words in planned.exclude(needs=[]).values_list("pk", "needs")}
    # A kernel whose files were removed is being built again (lab/rebuilding.py): its sessions wait for it.
    built = {"base_build__state": BuildState.BUILT, "patched_build__state": BuildState.BUILT}
    unbuilt = set(planned.exclude(**built).values_list("pk", flat=True))
    equal = planned.filter(machine__in=held, trial__purpose=Trial.Purpose.NOISE)
    trying = set(equal.values_list("pk", flat=True)) if held else _NOBODY
    health = str(Session.Purpose.HEALTH)
    rows = planned.annotate(
        tree=tree_of(), asker=asker_of(), created=_seconds("created_at"), deadline=_seconds("deadline_at")
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


def _seconds(field: str) -> Cast:
    """A moment as seconds: Django reads those ten times as fast as moments with a zone."""
    return Cast(Extract(field, "epoch"), FloatField())


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def waiting_builds(priorities: Mapping[int, int], now: datetime) -> tuple[WaitingBuild, ...]:
    """All wanted builds, in no order."""
    rows = list(Build.objects.filter(state=BuildState.WANTED).order_by().values_list(*_BUILD))
    if not rows:
        return ()
    delays = delayed_builds(now)
    lacking = _lacking({row[-1] for row in rows})
    asked = _trial_priorities(lacking)
    waiting = []
    for pk, tree, since, arch, toolchain, config, tree_sha in rows:
        stage, series, base = lacking.get(tree_sha, (1, 0, False))
        due, tried = delays.get(pk, (since, 0))
        priority = priorities.get(tree, 0) + asked.get(tree_sha, 0)
        waiting.append(
            WaitingBuild(pk, tree, series, priority, since, due, arch, toolchain, config, stage, base, tried)
        )
    return tuple(waiting)


def _trial_priorities(of_series: Container[str]) -> dict[str, int]:
    """By source tree the highest priority of the trials that wait for it; not below that of a series that does, too."""
    trials = Trial.objects.filter(state=TrialState.WANTED).exclude(priority=0).order_by()
    found: dict[str, int] = {}
    for priority, *trees in trials.values_list("priority", "base__tree_sha", "patched__tree_sha"):
        for tree_sha in trees:
            found[tree_sha] = max(priority, found.get(tree_sha, 0 if tree_sha in of_series else priority))
    return found


def _lacking(wanted: set[str]) -> dict[str, tuple[int, int, bool]]:
    """For the source tree of each wanted build: how many kernels its series lacks, which series, whether as its base.

    Of several series that one which lacks the fewest: its sessions can begin the soonest.
    """
    waiting = Build.objects.filter(state=BuildState.WANTED).order_by().values("tree_sha")
    applied = Series.objects.filter(state=SeriesState.APPLIED).order_by()
    fields = ("pk", "base__tree_sha", "head__tree_sha")
    # Two queries, each by an index: one with OR over both would read every series.
    rows = set(applied.filter(base__tree_sha__in=waiting).values_list(*fields))
    rows |= set(applied.filter(head__tree_sha__in=waiting).values_list(*fields))
    found: dict[str, list[tuple[int, int, bool]]] = defaultdict(list)
    for series, base, head in rows:
        stage = len({base, head} & wanted)
        for tree_sha in {base, head} & wanted:
            found[tree_sha].append((stage, series, tree_sha == base))
    return {tree_sha: min(series) for tree_sha, series in found.items()}

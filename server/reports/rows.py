"""All rows of many series at once, in a number of queries that does not grow with them."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.db.models import Count, Q, prefetch_related_objects

from server.builds.models import Build
from server.core.models import Transition
from server.detection.models import Finding
from server.lab.models import Attempt, Boot, Machine, Session
from server.sources.models import Patch, Series

# (config, toolchain): what a kernel is built with.
Recipe = tuple[int, int]
# What stages tell of machines and builds. Logs and whole configurations of hundreds of series would fill the memory.
_OF_MACHINE = ("name", "clock", "virtual", "uarch__name", "config__name", "toolchain__name")
_OF_BUILD = (
    *("tree_sha", "state", "state_since", "reason", "created_at", "build_id", "given_up"),
    *("config__name", "toolchain__name"),
)
_OF_SESSION = (
    *("series", "state", "state_since", "reason", "created_at"),
    *(f"machine__{name}" for name in _OF_MACHINE),
    *(f"{build}__{recipe}" for build in ("base_build", "patched_build") for recipe in ("config", "toolchain")),
)


@dataclass(frozen=True)
class SeriesRows:
    """One series with everything that hangs on it. `builds` and `sessions` are empty until they are planned."""

    series: Series
    patches: int
    machines: tuple[Machine, ...]
    recipes: tuple[Recipe, ...]
    builds: dict[tuple[str, Recipe], Build]
    sessions: tuple[Session, ...]
    boots: dict[int, dict[str, int]]
    working: dict[tuple[str, int], str]
    entered: dict[str, datetime]
    finding: Finding | None


@dataclass
class _Bulk:
    """Rows of all asked series, by the ids that join them."""

    patches: dict[int, int] = field(default_factory=dict)
    machines: list[Machine] = field(default_factory=list)
    builds: dict[str, list[Build]] = field(default_factory=lambda: defaultdict(list))
    known: dict[int, Build] = field(default_factory=dict)
    sessions: dict[int, list[Session]] = field(default_factory=lambda: defaultdict(list))
    boots: dict[int, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    working: dict[tuple[str, int], str] = field(default_factory=dict)
    entered: dict[int, dict[str, datetime]] = field(default_factory=lambda: defaultdict(dict))
    findings: dict[int, Finding] = field(default_factory=dict)


def rows_of_many(series: Sequence[Series]) -> list[SeriesRows]:
    """The rows of each series, in the order given."""
    if not series:
        return []
    prefetch_related_objects(list(series), "base", "head", "mailing_list", "superseded_by")
    bulk = _load(series)
    return [_rows_of(one, bulk) for one in series]


def _load(series: Sequence[Series]) -> _Bulk:
    ids = [one.pk for one in series]
    bulk = _Bulk()
    bulk.patches = dict(
        Patch.objects.filter(series__in=ids).order_by().values_list("series").annotate(count=Count("id"))
    )
    good = Machine.objects.filter(enabled=True, health=Machine.Health.GOOD)
    bulk.machines = list(good.select_related("uarch", "config", "toolchain").only(*_OF_MACHINE))
    trees = {revision.tree_sha for one in series for revision in (one.base, one.head) if revision}
    for build in Build.objects.filter(tree_sha__in=trees).select_related("config", "toolchain").only(*_OF_BUILD):
        bulk.builds[build.tree_sha].append(build)
        bulk.known[build.pk] = build
    sessions = Session.objects.filter(series__in=ids).select_related(
        "machine__uarch", "machine__config", "machine__toolchain", "base_build", "patched_build"
    )
    for session in sessions.only(*_OF_SESSION).order_by("machine__uarch__name", "machine__name"):
        assert session.series_id is not None
        bulk.sessions[session.series_id].append(session)
    _load_work(ids, bulk)
    steps = Transition.objects.filter(subject="series", subject_id__in=ids).order_by("id")
    for subject_id, after, at in steps.values_list("subject_id", "after", "at"):
        bulk.entered[subject_id].setdefault(after, at)
    findings = Finding.objects.filter(series__in=ids).select_related("report__delivery")
    findings = findings.defer(*Finding.LONG, "report__body")
    bulk.findings = {finding.series_id: finding for finding in findings if finding.series_id is not None}
    return bulk


def _load_work(ids: list[int], bulk: _Bulk) -> None:
    counts = Boot.objects.filter(session__series__in=ids).order_by().values_list("session", "state")
    for session_id, state, count in counts.annotate(count=Count("id")):
        bulk.boots[session_id][state] = count
    attempts = Attempt.objects.filter(
        Q(session__series__in=ids) | Q(build__in=list(bulk.known)), state__in=Attempt.ACTIVE
    ).order_by("id")
    for session_id, build_id, progress, state in attempts.values_list("session_id", "build_id", "progress", "state"):
        text = progress or Attempt.State(state).label
        bulk.working[("session", session_id) if session_id else ("build", build_id)] = text


def _rows_of(series: Series, bulk: _Bulk) -> SeriesRows:
    sessions = tuple(bulk.sessions[series.pk])
    # Sessions of a series are all planned at once: while there are none, the good machines are the plan.
    machines = tuple(session.machine for session in sessions) or tuple(bulk.machines)
    recipes = tuple(dict.fromkeys((machine.config_id, machine.toolchain_id) for machine in machines))
    if sessions:
        used = [build for session in sessions for build in (session.base_build, session.patched_build)]
        recipes = tuple(dict.fromkeys((build.config_id, build.toolchain_id) for build in used))
    builds: dict[tuple[str, Recipe], Build] = {}
    for arm, revision in ((Boot.Arm.BASE, series.base), (Boot.Arm.PATCHED, series.head)):
        for build in bulk.builds[revision.tree_sha] if revision else []:
            recipe = (build.config_id, build.toolchain_id)
            if recipe in recipes:
                # The newest: older ones of this configuration were retired, or had other lines.
                builds.setdefault((str(arm), recipe), build)
    for session in sessions:
        for arm, pk in ((Boot.Arm.BASE, session.base_build_id), (Boot.Arm.PATCHED, session.patched_build_id)):
            if used_one := bulk.known.get(pk):
                builds[str(arm), (used_one.config_id, used_one.toolchain_id)] = used_one
    return SeriesRows(
        series=series,
        patches=bulk.patches.get(series.pk, 0),
        machines=machines,
        recipes=recipes,
        builds=builds,
        sessions=sessions,
        boots=bulk.boots,
        working=bulk.working,
        entered=bulk.entered[series.pk],
        finding=bulk.findings.get(series.pk),
    )

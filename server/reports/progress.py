"""How far things have come, stored nowhere: the progress of a series, every step of its history, what waits."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from django.db.models import Q, QuerySet

from server.builds.models import Build
from server.core.models import Transition
from server.core.rows.together import Row, read_together
from server.detection.models import Finding
from server.lab.models import Attempt, Boot, PowerCycle, Session
from server.lab.port import WorkKind
from server.lab.scheduling.placement import Waiting, queue_in_order
from server.lab.trials.question import purpose_of
from server.reports.stages import (
    SeriesRows,
    Stage,
    StageName,
    apply_stage,
    builds_stage,
    mails_stage,
    report_stage,
    rows_of_many,
    sessions_stage,
    verdict_stage,
)
from server.sources.models import Patch, Series, SeriesState, Tree


@dataclass(frozen=True, slots=True)
class ProgressStep:
    at: datetime
    trace: str
    subject: str
    subject_id: int
    label: str
    before: str
    after: str
    reason: str
    # Who did it; empty for the service itself.
    actor: str = ""


def series_history(series: Series) -> tuple[ProgressStep, ...]:
    """Oldest first: all rows that carry the trace of the series, and the builds it shares with other series."""
    sessions = list(Session.objects.filter(series=series).select_related("machine"))
    own = Q(trace=series.trace)
    trees = [revision.tree_sha for revision in (series.base, series.head) if revision]
    used = {build_id for session in sessions for build_id in (session.base_build_id, session.patched_build_id)}
    named = Build.objects.filter(Q(pk__in=used) | own, tree_sha__in=trees).select_related("config")
    builds = list(named.only("tree_sha", "config__name"))
    attempts = list(
        Attempt.objects.filter(Q(build__in=builds) | Q(session__in=sessions)).values_list("id", "key", "build_id")
    )
    labels = _session_labels(sessions, _boots_of(sessions)) | _build_labels(series, builds)
    labels |= {("attempt", pk): f"attempt {key}" for pk, key, _build in attempts}
    labels |= {("machine", session.machine_id): f"hardware of {session.machine.name}" for session in sessions}
    shared = Q(subject="build", subject_id__in=[build.pk for build in builds])
    shared |= Q(subject="attempt", subject_id__in=[pk for pk, _key, build in attempts if build])
    # Who handed its mails in.
    patches = Patch.objects.filter(series=series).order_by().values("message")
    mails = Q(subject="message") & (Q(subject_id__in=patches) | Q(subject_id=series.cover_id or 0))
    return _steps(own | shared | mails, labels)


def session_history(session: Session) -> tuple[ProgressStep, ...]:
    """Oldest first: the session, its boots and its attempts. Sessions of no series have a history, too."""
    attempts, boots = read_together(
        Attempt.objects.filter(session=session).values_list("id", "key"), _boots_of([session])
    )
    labels = _session_labels([session], boots) | {("attempt", pk): f"attempt {key}" for pk, key in attempts}
    return _steps(_about(labels), labels)


def build_history(build: Build) -> tuple[ProgressStep, ...]:
    """Oldest first: the build and its attempts."""
    attempts = Attempt.objects.filter(build=build).values_list("id", "key")
    labels = {("build", build.pk): f"build {build.pk}"} | {("attempt", pk): f"attempt {key}" for pk, key in attempts}
    return _steps(_about(labels), labels)


def _about(labels: Mapping[tuple[str, int], str]) -> Q:
    """The steps of the things that have a label."""
    ids: dict[str, list[int]] = {}
    for subject, pk in labels:
        ids.setdefault(subject, []).append(pk)
    wanted = Q()
    for subject, pks in ids.items():
        wanted |= Q(subject=subject, subject_id__in=pks)
    return wanted


def _steps(where: Q, labels: Mapping[tuple[str, int], str]) -> tuple[ProgressStep, ...]:
    return tuple(
        ProgressStep(
            at=row.at,
            trace=row.trace,
            subject=row.subject,
            subject_id=row.subject_id,
            label=labels.get((row.subject, row.subject_id), row.subject),
            before=row.before,
            after=row.after,
            reason=row.reason,
            actor=row.actor,
        )
        for row in Transition.objects.filter(where).order_by("id")
    )


def _build_labels(series: Series, builds: list[Build]) -> dict[tuple[str, int], str]:
    base = series.base.tree_sha if series.base else ""
    return {
        ("build", build.pk): f"{'base' if build.tree_sha == base else 'patched'} kernel ({build.config.name})"
        for build in builds
    }


def _boots_of(sessions: list[Session]) -> "QuerySet[Any, Any]":
    return Boot.objects.filter(session__in=sessions).values_list("id", "session_id", "position", "arm")


def _session_labels(sessions: list[Session], boots: Iterable[Row]) -> dict[tuple[str, int], str]:
    labels = {("session", session.pk): f"session on {session.machine.name}" for session in sessions}
    names = {session.pk: session.machine.name for session in sessions}
    return labels | {
        ("boot", pk): f"boot {position} ({arm}) on {names[session_id]}" for pk, session_id, position, arm in boots
    }


# A longer queue than this is told by its beginning.
_SHOWN = 200


@dataclass(frozen=True, slots=True)
class QueueRow:
    """`place` counts from 1: builds among all builds, sessions among those for their machine, which is `machine`."""

    place: int
    kind: str
    id: int
    title: str
    detail: str
    series_id: int | None
    tree: str
    machine: str
    since: datetime
    deadline: datetime | None
    why: str


@dataclass(frozen=True, slots=True)
class Queue:
    """`total` counts all that wait; `rows` are the first of them."""

    rows: tuple[QueueRow, ...]
    total: int

    @property
    def unshown(self) -> int:
        return self.total - len(self.rows)


@dataclass(frozen=True, slots=True)
class _Named:
    """What a piece of work is, for people."""

    title: str
    detail: str = ""
    series_id: int | None = None
    deadline: datetime | None = None


def queue(
    tree: str = "",
    machine: str = "",
    waiting_now: Sequence[Waiting] | None = None,
    trees: Mapping[int, str] | None = None,
) -> Queue:
    """All that waits, or what waits for the tree, or the machine, of this name; places are those in the whole queue.

    `waiting_now` is that whole queue, and `trees` are the names of trees, where they were read already.
    """
    trees = dict(Tree.objects.values_list("id", "name")) if trees is None else trees
    waiting = [
        one
        for one in (queue_in_order() if waiting_now is None else waiting_now)
        if (not tree or trees.get(one.tree) == tree) and (not machine or _is_for(one, machine))
    ]
    return Queue(_rows(waiting[:_SHOWN], trees), total=len(waiting))


def _is_for(waiting: Waiting, machine: str) -> bool:
    return waiting.host == machine and waiting.kind is not WorkKind.BUILD


def _rows(waiting: Sequence[Waiting], trees: Mapping[int, str]) -> tuple[QueueRow, ...]:
    """One query for each kind of work."""
    named = {kind: name([one.id for one in waiting if one.kind is kind]) for kind, name in _NAMES.items()}
    return tuple(
        _row(one, named[one.kind][one.id], trees.get(one.tree, "")) for one in waiting if one.id in named[one.kind]
    )


def _row(waiting: Waiting, named: _Named, tree: str) -> QueueRow:
    return QueueRow(
        place=waiting.position,
        kind=waiting.kind.value,
        id=waiting.id,
        title=named.title,
        detail=named.detail,
        series_id=named.series_id,
        tree=tree,
        machine="" if waiting.kind is WorkKind.BUILD else waiting.host,
        since=waiting.since,
        deadline=named.deadline,
        why=waiting.reason,
    )


def _builds(ids: Sequence[int]) -> Mapping[int, _Named]:
    rows = Build.objects.filter(pk__in=ids).select_related("revision", "config")
    rows = rows.only("arch", "revision__subject", "config__name")
    return {row.pk: _Named(row.revision.subject, f"{row.config.name} {row.arch}") for row in rows}


def _sessions(ids: Sequence[int]) -> Mapping[int, _Named]:
    rows = Session.objects.filter(pk__in=ids).select_related("series", "trial", "machine").defer("series__trailers")
    return {
        row.pk: _Named(
            title=purpose_of(row),
            series_id=row.series_id,
            deadline=row.deadline_at,
        )
        for row in rows
    }


def _power_cycles(ids: Sequence[int]) -> Mapping[int, _Named]:
    return {row.pk: _Named(row.reason) for row in PowerCycle.objects.filter(pk__in=ids)}


_NAMES: Mapping[WorkKind, Callable[[Sequence[int]], Mapping[int, _Named]]] = {
    WorkKind.POWER_CYCLE: _power_cycles,
    WorkKind.BUILD: _builds,
    WorkKind.SESSION: _sessions,
}


ProgressState = Literal["running", "done", "failed", "held", "superseded"]


@dataclass(frozen=True, slots=True)
class SeriesProgress:
    """`held` waits for a person, `reason` says for what; `failed` has no way on, `reason` says why."""

    series_id: int
    state: ProgressState
    reason: str
    stages: tuple[Stage, ...]

    def stage(self, name: StageName) -> Stage:
        return next(stage for stage in self.stages if stage.name == name)

    @property
    def current(self) -> Stage:
        """The stage that is not done yet, or the last one."""
        return next((stage for stage in self.stages if stage.state != "done"), self.stages[-1])


def series_progress(series: Series) -> SeriesProgress:
    return series_progress_many([series])[0]


def series_progress_many(
    series: Sequence[Series], findings: Mapping[int, Finding] | None = None
) -> list[SeriesProgress]:
    """The progress of each series, in the order given; the number of queries does not depend on how many.

    `findings` by series, with their reports and deliveries, are asked for where they are not given.
    """
    return [_progress(rows) for rows in rows_of_many(series, findings)]


def _progress(rows: SeriesRows) -> SeriesProgress:
    sessions = sessions_stage(rows)
    verdict = verdict_stage(rows, sessions)
    stages = (
        mails_stage(rows),
        apply_stage(rows),
        builds_stage(rows),
        sessions,
        verdict,
        report_stage(rows, verdict),
    )
    state, reason = _overall(rows.series, stages)
    return SeriesProgress(rows.series.pk, state, reason, stages)


def _overall(series: Series, stages: Sequence[Stage]) -> tuple[ProgressState, str]:
    if series.state == SeriesState.SUPERSEDED:
        newer = series.superseded_by
        return "superseded", f"superseded by version {newer.numeral}" if newer else series.reason
    failed = next((stage for stage in stages if stage.state == "failed"), None)
    # Machines whose kernels do not build get failed sessions at once: only then is nothing left to happen.
    if failed is not None and not any(stage.state == "running" for stage in stages):
        return "failed", f"{failed.name}: {failed.detail}"
    held = next((stage for stage in stages if stage.held), None)
    if held is not None:
        return "held", held.detail
    if all(stage.state == "done" for stage in stages):
        return "done", stages[4].detail
    current = next(stage for stage in stages if stage.state != "done")
    return "running", f"{current.name}: {current.detail}" if current.detail else current.name

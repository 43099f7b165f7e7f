"""Every step of everything that belongs to a series, a session or a build, with a name for each thing that stepped."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q

from server.builds.models import Build
from server.core.models import Transition
from server.lab.models import Attempt, Boot, Session
from server.sources.models import Series


@dataclass(frozen=True, slots=True)
class Step:
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


def series_history(series: Series) -> tuple[Step, ...]:
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
    labels = _session_labels(sessions) | _build_labels(series, builds)
    labels |= {("attempt", pk): f"attempt {key}" for pk, key, _build in attempts}
    labels |= {("machine", session.machine_id): f"hardware of {session.machine.name}" for session in sessions}
    shared = Q(subject="build", subject_id__in=[build.pk for build in builds])
    shared |= Q(subject="attempt", subject_id__in=[pk for pk, _key, build in attempts if build])
    return _steps(own | shared, labels)


def session_history(session: Session) -> tuple[Step, ...]:
    """Oldest first: the session, its boots and its attempts. Sessions of no series have a history, too."""
    attempts = Attempt.objects.filter(session=session).values_list("id", "key")
    labels = _session_labels([session]) | {("attempt", pk): f"attempt {key}" for pk, key in attempts}
    return _steps(_about(labels), labels)


def build_history(build: Build) -> tuple[Step, ...]:
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


def _steps(where: Q, labels: Mapping[tuple[str, int], str]) -> tuple[Step, ...]:
    return tuple(
        Step(
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


def _session_labels(sessions: list[Session]) -> dict[tuple[str, int], str]:
    labels = {("session", session.pk): f"session on {session.machine.name}" for session in sessions}
    names = {session.pk: session.machine.name for session in sessions}
    boots = Boot.objects.filter(session__in=sessions).values_list("id", "session_id", "position", "arm")
    return labels | {
        ("boot", pk): f"boot {position} ({arm}) on {names[session_id]}" for pk, session_id, position, arm in boots
    }

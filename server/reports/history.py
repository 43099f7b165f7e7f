"""Every step of everything that belongs to a series, with a name for each thing that stepped."""

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


def series_history(series: Series) -> tuple[Step, ...]:
    """Oldest first: all rows that carry the trace of the series, and the builds it shares with other series."""
    sessions = list(Session.objects.filter(series=series).select_related("machine"))
    own = Q(trace=series.trace)
    trees = [revision.tree_sha for revision in (series.base, series.head) if revision]
    used = {build_id for session in sessions for build_id in (session.base_build_id, session.patched_build_id)}
    builds = list(Build.objects.filter(Q(pk__in=used) | own, tree_sha__in=trees).select_related("config"))
    attempts = list(
        Attempt.objects.filter(Q(build__in=builds) | Q(session__in=sessions)).values_list("id", "key", "build_id")
    )
    labels = _session_labels(sessions) | _build_labels(series, builds)
    labels |= {("attempt", pk): f"attempt {key}" for pk, key, _build in attempts}
    labels |= {("machine", session.machine_id): f"hardware of {session.machine.name}" for session in sessions}
    shared = Q(subject="build", subject_id__in=[build.pk for build in builds])
    shared |= Q(subject="attempt", subject_id__in=[pk for pk, _key, build in attempts if build])
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
        )
        for row in Transition.objects.filter(own | shared).order_by("id")
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

"""Judging a series: its comparisons, the vector over microarchitectures, and one finding."""

from collections.abc import Sequence
from dataclasses import asdict

import structlog
from django.db import transaction

from server.core.errors import DomainError
from server.core.tasks import enqueue
from server.detection.cells import case_notes, fresh_comparisons, sessions_with_one_image
from server.detection.headline import headline
from server.detection.models import Comparison, Finding, FindingVerdict
from server.detection.scope import Scope, scope_of
from server.detection.vector import Gap, UarchVerdict, kind_of, uarch_verdicts
from server.lab.models import Session
from server.sources.models import Series

log = structlog.get_logger(__name__)


def judge_series(*, series_id: int) -> Finding | None:
    """The series' finding, made now if it is time: every session over, and at least one that may be judged.

    Returns None while it is not, and for ever once a newer version has replaced the series. Calling it again, or at
    once from several processes, gives the same finding.
    """
    with transaction.atomic():
        # Whoever comes second waits here and then finds the finding.
        series = Series.objects.select_for_update(no_key=True).filter(pk=series_id).first()
        if series is None:
            raise DomainError("series-unknown", f"there is no series {series_id}")
        finding = Finding.objects.filter(series=series).first()
        if finding is not None:
            return finding
        if series.state != Series.State.APPLIED:
            return None
        scope = scope_of(series)
        if scope is None:
            return None
        finding = _record_finding(series, scope)
        enqueue("reports.sweep")
    return finding


def _record_finding(series: Series, scope: Scope) -> Finding:
    comparisons = Comparison.objects.bulk_create(fresh_comparisons(scope.done))
    gaps = _gaps(scope, comparisons)
    vector = uarch_verdicts((session.machine.uarch for session in scope.sessions), comparisons, gaps)
    identical = bool(scope.done) and len(sessions_with_one_image(scope.done)) == len(scope.done)
    finding = Finding.objects.create(
        series=series,
        state=Finding.State.CONFIRMED,
        trace=series.trace,
        kind=kind_of(vector),
        headline=headline(vector, identical=identical),
        virtual=scope.virtual,
        identical=identical,
        gaps=[asdict(gap) for gap in gaps],
    ).record_creation()
    FindingVerdict.objects.bulk_create([_component(finding, component) for component in vector])
    log.info("series_judged", trace=series.trace, series=series.pk, kind=finding.kind, cells=len(comparisons))
    return finding


def _component(finding: Finding, component: UarchVerdict) -> FindingVerdict:
    return FindingVerdict(
        finding=finding,
        uarch=component.uarch,
        verdict=component.verdict,
        reason=component.reason,
        comparison=component.moved[0].speaker if component.moved else None,
        mde=component.mde,
    )


def _gaps(scope: Scope, comparisons: Sequence[Comparison]) -> list[Gap]:
    """Sessions without a result, and cases that gave no value in any boot of a session that is done."""
    gaps = [
        _gap(session, reason=session.reason or Session.State(session.state).label)
        for session in scope.sessions
        if session.state != Session.State.DONE
    ]
    done = {session.pk: session for session in scope.done}
    judged = {(row.session_id, row.case.benchmark.name, row.case.name) for row in comparisons}
    missing = [note for note in case_notes(scope.done) if (note.session_id, note.benchmark, note.case) not in judged]
    # A machine without some node or program skips hundreds of cases for one reason, which must not hide all others.
    alike: dict[tuple[int, str], list[str]] = {}
    for note in missing:
        alike.setdefault((note.session_id, note.text), []).append(note.case)
    for (session_id, text), cases in alike.items():
        more = f" and {len(cases) - 1} more" if len(cases) > 1 else ""
        gaps.append(_gap(done[session_id], reason=f"{cases[0]}{more}: {text}"))
    silent = set(done) - {row.session_id for row in comparisons} - {note.session_id for note in missing}
    return gaps + [_gap(done[session_id], reason="no boot gave a value") for session_id in sorted(silent)]


def _gap(session: Session, *, reason: str) -> Gap:
    machine = session.machine
    return Gap(machine=machine.name, uarch=machine.uarch.name, reason=reason)

"""Judging a series: its comparisons, the vector over microarchitectures, and one finding."""

import structlog
from django.db import transaction

from server.core.errors import DomainError
from server.core.tasks import enqueue
from server.detection.answering import answer_trial
from server.detection.judging import fresh_comparisons
from server.detection.looking import look_at_trial
from server.detection.models import Comparison, Finding
from server.detection.results import remade, write_result
from server.detection.scope import Scope, scope_of
from server.lab.models import Trial
from server.sources.models import Series

log = structlog.get_logger(__name__)


def judge_series(*, series_id: int) -> Finding | None:
    """The series' finding, made now if it is time: every session over, and at least one that may be judged.

    Returns None while it is not, and for ever once a newer version has replaced the series. Calling it again, or at
    once from several processes, gives the same finding.
    """
    if not Series.objects.filter(pk=series_id).exists():
        raise DomainError("series-unknown", f"there is no series {series_id}")
    trial = Trial.objects.filter(series=series_id, purpose=Trial.Purpose.SERIES).first()
    if trial is None:
        return _judge_without_trial(series_id)
    if look_at_trial(trial_id=trial.pk):
        answer_trial(trial_id=trial.pk)
    return Finding.objects.filter(series=series_id).first()


def _judge_without_trial(series_id: int) -> Finding | None:
    """Of before there were trials: all boots are compared once, and the finding is confirmed as it is."""
    with transaction.atomic():
        # Whoever comes second waits here and then finds the finding.
        series = Series.objects.select_for_update(no_key=True).get(pk=series_id)
        finding = Finding.objects.filter(series=series).first()
        if finding is not None:
            return finding
        if series.state != Series.State.APPLIED:
            return None
        scope = scope_of(series)
        if scope is None:
            return None
        finding = _record(series, scope)
        enqueue("reports.sweep")
    return finding


def _record(series: Series, scope: Scope) -> Finding:
    comparisons = Comparison.objects.bulk_create(fresh_comparisons(scope.done))
    finding = Finding(series=series, virtual=scope.virtual, state=Finding.State.CONFIRMED, trace=series.trace)
    result = remade(finding)
    assert result is not None
    finding.kind, finding.headline = result.kind, result.headline
    finding.save()
    finding.record_creation()
    write_result(finding, result)
    log.info("series_judged", trace=series.trace, series=series.pk, kind=finding.kind, cells=len(comparisons))
    return finding

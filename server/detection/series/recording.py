"""The finding of a series, from the trial that measured it."""

import structlog

from server.detection.following import follow_up
from server.detection.models import Finding
from server.detection.results import Result, remake, result_of, write_result
from server.lab.models import Trial
from server.sources.models import Series

log = structlog.get_logger(__name__)


def answer(trial: Trial) -> None:
    """Take up what a trial of purpose SERIES measured."""
    record_finding(trial)


def record_finding(trial: Trial) -> Finding | None:
    """The finding of the trial's series: the one there is, or a new candidate.

    None where nothing may be judged, and for ever once a newer version has replaced the series. Runs in the caller's
    transaction, which holds the series.
    """
    series = trial.series
    assert series is not None
    finding = Finding.objects.filter(series=series).first()
    if finding is not None:
        if finding.trial_id == trial.pk and _said_nothing(finding):
            remake(finding)
        return finding
    if series.state != Series.State.APPLIED or trial.state == Trial.State.CANCELED:
        return None
    result = result_of(trial)
    if result is None:
        return None
    finding = _create(series, trial, result)
    log.info("series_judged", trace=series.trace, series=series.pk, kind=finding.kind, cells=len(result.comparisons))
    follow_up(finding)
    return finding


def _said_nothing(finding: Finding) -> bool:
    """Nothing was measured, and nobody was told: its kernel failed, and was asked for again since."""
    untold = finding.state in {Finding.State.CANDIDATE, Finding.State.CONFIRMED}
    return untold and finding.kind == Finding.Kind.INCONCLUSIVE


def _create(series: Series, trial: Trial, result: Result) -> Finding:
    finding = Finding.objects.create(
        series=series,
        trial=trial,
        state=Finding.State.CANDIDATE,
        trace=series.trace,
        kind=result.kind,
        headline=result.headline,
        virtual=result.scope.virtual,
    ).record_creation()
    write_result(finding, result)
    return finding

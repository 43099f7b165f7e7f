"""A trial that is over answers a question: its result goes to whoever asked, once."""

from collections.abc import Callable

import structlog
from django.db import transaction

from server.core import clock
from server.core.errors import DomainError
from server.core.reasons import Because, Reason
from server.core.tasks import enqueue
from server.detection.bisection import step
from server.detection.branches.candidates import asked_for
from server.detection.branches.observation import POINT_PARTS, observe_due
from server.detection.branches.release import ask_otherwise, release_unasked
from server.detection.findings.checks import Name, held, set_checks
from server.detection.findings.result import Result, result_of, write_result
from server.detection.lifecycle.confirmation import conclude_checks, follow_up, ill_machines
from server.detection.lifecycle.fix import answer_fix
from server.detection.lifecycle.retest import answer_retest, take_up_anew
from server.detection.models import ChangePoint, Comparison, Finding, FindingTrial, Timeline, Verdict
from server.detection.noise.drift import judge_drift
from server.detection.noise.profiles import refresh_profiles
from server.detection.noise.questions import ask_about_disagreements
from server.lab.models import Session, Trial
from server.sources.models import Series

log = structlog.get_logger(__name__)


def answer_series(trial: Trial) -> None:
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
        take_up_anew(finding, trial)
        finding.refresh_from_db()
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


def _create(series: Series, trial: Trial, result: Result) -> Finding:
    finding = Finding.objects.create(
        series=series,
        trial=trial,
        state=Finding.State.CANDIDATE,
        trace=series.trace,
        kind=result.kind,
        headline=result.headline,
        virtual=result.scope.virtual,
        canary=series.canary,
    ).record_creation()
    write_result(finding, result)
    return finding


# In one transaction: a head that was waited for may let many enter.
_MOST = 10
_OPEN = (ChangePoint.State.SUSPECT, ChangePoint.State.SETTLED)
_CHANGES = (Verdict.REGRESSED, Verdict.IMPROVED)


def answer_branch(trial: Trial) -> None:
    """Take up a HEAD or CONFIRM trial that is over. Harmless twice."""
    if trial.purpose == Trial.Purpose.HEAD:
        _answer_head(trial)
    else:
        _answer_confirmation(trial)


def _answer_head(trial: Trial) -> None:
    for branch, reference in trial.heads.filter(observed_at=None).values_list("branch_id", "reference_id").distinct():
        if observe_due(branch, reference, most=_MOST) == _MOST:
            enqueue("detection.tend", "heads")


def _answer_confirmation(trial: Trial) -> None:
    """A cell that was suspected moved again, the same way: the finding says what fresh boots say. Else it is none."""
    finding = Finding.objects.select_for_update(of=("self",)).filter(trial=trial).first()
    if finding is None or finding.state != Finding.State.CANDIDATE or finding.verdicts.exists():
        return
    result = result_of(trial)
    if ill := ill_machines(result):
        # One that cannot be relied on contradicts nobody.
        set_checks(finding, [Name.MACHINE], ill)
        result = result_of(trial, checks=finding.checks)
    points = list(finding.change_points.filter(state__in=_OPEN).select_related(*POINT_PARTS))
    if result is not None and result.identical:
        _refuse(finding, points, Because.SAME_CODE("the kernels before and after run the same code"), refuted=True)
        return
    if result is None or not result.comparisons:
        why = Because.NOT_MEASURED(f"could not be measured again: {trial.reason or 'no boot gave a value'}")
        _refuse(finding, points, why, refuted=False)
        release_unasked(finding)
        return
    write_result(finding, result)
    if not points:
        _refuse(finding, points, Because.TAKEN_BACK(), refuted=False)
        return
    seen = _seen_again(result, points)
    if not seen:
        # Machines of one microarchitecture may disagree about the very cell: that is a question about them.
        ask_about_disagreements(finding)
        looked_at = asked_for(trial, points)
        _refuse(finding, looked_at, Because.NOT_SEEN_AGAIN(_not_seen(result)), refuted=True)
        ask_otherwise(finding, [point for point in points if point not in looked_at])
        return
    # The others may be of another change nearby: the watch still settles, moves or withdraws them.
    ChangePoint.objects.filter(pk__in=[point.pk for point in seen]).update(state=ChangePoint.State.SETTLED)
    follow_up(finding)


def _seen_again(result: Result, points: list[ChangePoint]) -> list[ChangePoint]:
    """The points whose cell changed in their direction, on that machine or another of its microarchitecture.

    Where machines of one microarchitecture disagree about the cell, it is no finding but a question.
    """
    moved = {component.uarch.pk for component in result.vector if component.verdict in (*_CHANGES, Finding.Kind.SPLIT)}
    changed = {
        (row.session.machine.uarch_id, *_cell(row), row.ratio > 1)
        for row in result.comparisons
        if row.verdict in _CHANGES and row.ratio is not None and row.session.machine.uarch_id in moved
    }
    return [p for p in points if (p.timeline.machine.uarch_id, *_cell(p.timeline), p.effect > 0) in changed]


def _cell(of: Timeline | Comparison) -> tuple[int, int]:
    return of.case_id, of.metric_id


def _not_seen(result: Result) -> str:
    return f"not seen again in fresh boots of the revisions before and after: {result.headline}"


def _refuse(finding: Finding, points: list[ChangePoint], reason: Reason, *, refuted: bool) -> None:
    finding.advance(Finding.State.INVALID, reason)
    if refuted:
        ChangePoint.objects.filter(pk__in=[point.pk for point in points]).update(state=ChangePoint.State.WITHDRAWN)


def answer_check(trial: Trial) -> None:
    """Take up the answer of a trial of purpose LAYOUT or FIX, which is over. Harmless to repeat."""
    finding = finding_of(trial)
    if finding is None:
        return
    if trial.purpose == Trial.Purpose.LAYOUT:
        conclude_checks(finding)
    else:
        answer_fix(finding, trial)


def finding_of(trial: Trial) -> Finding | None:
    """The finding that asked, held; None where none did."""
    asked = FindingTrial.objects.filter(trial=trial).first()
    return held(asked.finding_id) if asked else None


def answer_noise(trial: Trial) -> None:
    """Take up a trial of purpose NOISE that is over; harmless to repeat. One that was not measured tells nothing."""
    if trial.state != Trial.State.DONE:
        return
    done = trial.sessions.filter(state=Session.State.DONE).select_related("machine__uarch")
    for session in done.order_by("machine__name"):
        # A drift that is found takes its nights out of the profiles.
        judge_drift(trial, session.machine)
        refresh_profiles(session.machine)


Handler = Callable[[Trial], None]


HANDLERS: dict[str, Handler] = {
    Trial.Purpose.SERIES: answer_series,
    Trial.Purpose.RETEST: answer_retest,
    Trial.Purpose.HEAD: answer_branch,
    Trial.Purpose.CONFIRM: answer_branch,
    Trial.Purpose.PATCH: step.answer_bisection,
    Trial.Purpose.BISECT: step.answer_bisection,
    Trial.Purpose.REVERT: step.answer_bisection,
    Trial.Purpose.LAYOUT: answer_check,
    Trial.Purpose.FIX: answer_check,
    Trial.Purpose.NOISE: answer_noise,
}


def answer_trial(*, trial_id: int) -> bool:
    """Hand a trial that is over to whoever asked; False while it is not over, and when that was done already.

    The handler and the mark that it was called are one transaction, so that a process may be killed anywhere.
    Raises DomainError `trial-unknown`.
    """
    with transaction.atomic():
        row = Trial.objects.filter(pk=trial_id).values_list("pk", "series_id").first()
        if row is None:
            raise DomainError("trial-unknown", f"there is no trial {trial_id}")
        # The series before its trial, in the order in which whoever replaces a series holds them.
        Series.objects.select_for_update(no_key=True).filter(pk=row[1]).first()
        trial = Trial.objects.select_for_update(of=("self",), no_key=True).get(pk=trial_id)
        if trial.state not in Trial.FINAL or trial.answered_at is not None:
            return False
        HANDLERS[trial.purpose](trial)
        if trial.series_id is not None:
            # A walk over its patches is part of what is told of the finding, too.
            Finding.objects.filter(series=trial.series_id, news=False).update(news=True)
        Trial.objects.filter(pk=trial.pk).update(answered_at=clock.now())
        if trial.purpose == Trial.Purpose.RETEST:
            # Somebody may have asked by mail.
            enqueue("reports.answer_trial", trial.pk)
    return True

"""What trials of heads and confirmations have to say, taken up."""

from server.core.tasks import enqueue
from server.detection.following import follow_up
from server.detection.heads.confirming import asked_for
from server.detection.heads.observing import observe_due
from server.detection.heads.publishing import POINT_PARTS
from server.detection.heads.releasing import ask_otherwise, release_unasked
from server.detection.lifecycle.checking import ill_machines
from server.detection.lifecycle.checks import Name, set_checks
from server.detection.models import ChangePoint, Comparison, Finding, Timeline, Verdict
from server.detection.noise.questions import ask_about_disagreements
from server.detection.results import Result, result_of, write_result
from server.lab.models import Trial

# In one transaction: a head that was waited for may let many enter.
_MOST = 10
_OPEN = (ChangePoint.State.SUSPECT, ChangePoint.State.SETTLED)
_CHANGES = (Verdict.REGRESSED, Verdict.IMPROVED)


def answer(trial: Trial) -> None:
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
        _refuse(finding, points, "the kernels before and after run the same code", refuted=True)
        return
    if result is None or not result.comparisons:
        _refuse(
            finding, points, f"could not be measured again: {trial.reason or 'no boot gave a value'}", refuted=False
        )
        release_unasked(finding)
        return
    write_result(finding, result)
    if not points:
        _refuse(finding, points, "later points took the suspicion back", refuted=False)
        return
    seen = _seen_again(result, points)
    if not seen:
        # Machines of one microarchitecture may disagree about the very cell: that is a question about them.
        ask_about_disagreements(finding)
        looked_at = asked_for(trial, points)
        _refuse(finding, looked_at, _not_seen(result), refuted=True)
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


def _refuse(finding: Finding, points: list[ChangePoint], reason: str, *, refuted: bool) -> None:
    finding.advance(Finding.State.INVALID, reason)
    if refuted:
        ChangePoint.objects.filter(pk__in=[point.pk for point in points]).update(state=ChangePoint.State.WITHDRAWN)

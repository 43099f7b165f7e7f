"""What a bisection has done, what it cost, and what remains, for pages and the API."""

import math
from dataclasses import dataclass

from server.detection.bisection.knowledge import Kind
from server.detection.bisection.step import own_trials
from server.detection.bisection.walk import name_of_cell
from server.detection.models import Bisection, BisectionState, BisectionStep, Finding
from server.lab.trials.question import spent
from server.sources.models import Revision

# After the search: the culprit against its parent, and what is left without it.
_CHECKS = 2


@dataclass(frozen=True)
class StepView:
    """`answer` is empty while it is being measured; `sha` is empty for a revert that was not made.

    `earlier`: of a search that ended without an answer, before it was begun once more.
    """

    number: int
    round: int
    earlier: bool
    kind: str
    sha: str
    subject: str
    answer: str
    ratio: float | None
    reason: str


@dataclass(frozen=True)
class BisectionProgress:
    """`effect` is bad / good; `left` counts the revisions that may be it, from `first_sha` to `last_sha`.

    `seconds` are of machine time, of all rounds; `seconds_left` is a guess from all steps so far, None before the
    first.
    """

    id: int
    machine: str
    uarch: str
    cell: str
    state: str
    state_label: str
    reason: str
    reason_code: str
    round: int
    effect: float
    steps: tuple[StepView, ...]
    sessions: int
    boots: int
    seconds: float
    left: int
    first_sha: str
    last_sha: str
    steps_left: int
    seconds_left: float | None
    culprit_sha: str
    culprit_subject: str


def bisections_of(finding: Finding) -> tuple[BisectionProgress, ...]:
    rows = finding.bisections.select_related(
        "machine__uarch", "culprit", "target__metric", "target__case", "target__core_type"
    )
    return tuple(progress_of(row) for row in rows.order_by("machine__uarch__name", "machine__name"))


def progress_of(bisection: Bisection) -> BisectionProgress:
    trials = own_trials(bisection)
    cost = spent(trials)
    steps_left = _steps_left(bisection)
    told = own_trials(bisection, told=True)
    each = spent(told).seconds / len(told) if told else None
    # Before its own boots have shown the change, the first one with it is only that.
    culprit = bisection.culprit if bisection.state == BisectionState.FOUND else None
    return BisectionProgress(
        id=bisection.pk,
        machine=bisection.machine.name,
        uarch=bisection.machine.uarch.name,
        cell=name_of_cell(bisection.target),
        state=bisection.state,
        state_label=str(BisectionState(bisection.state).label),
        reason=bisection.reason,
        reason_code=bisection.reason_code,
        round=bisection.round,
        effect=math.exp(bisection.effect),
        steps=_steps(bisection),
        sessions=cost.sessions,
        boots=cost.boots,
        seconds=cost.seconds,
        left=bisection.high - bisection.low,
        first_sha=bisection.revisions[bisection.low + 1],
        last_sha=bisection.revisions[bisection.high],
        steps_left=steps_left,
        seconds_left=None if each is None else steps_left * each,
        culprit_sha=culprit.sha if culprit else "",
        culprit_subject=culprit.subject if culprit else "",
    )


def _steps_left(bisection: Bisection) -> int:
    """Sessions that are still to be measured, at most, if none is unsure; the one under way counts."""
    if bisection.state in Bisection.FINAL:
        return 0
    told = set(bisection.current_steps().exclude(answer="").values_list("kind", flat=True))
    checks = _CHECKS - len(told & {Kind.CULPRIT, Kind.REVERT})
    search = math.ceil(math.log2(bisection.high - bisection.low))
    return checks + search + (bisection.state == BisectionState.ENDS)


def _steps(bisection: Bisection) -> tuple[StepView, ...]:
    steps = list(bisection.steps.select_related("trial__patched").order_by("number"))
    shas = {bisection.revisions[step.index] for step in steps if step.index is not None}
    subjects = dict(Revision.objects.filter(sha__in=shas).values_list("sha", "subject"))
    return tuple(_step(bisection, step, subjects) for step in steps)


def _step(bisection: Bisection, step: BisectionStep, subjects: dict[str, str]) -> StepView:
    if step.index is not None:
        sha = bisection.revisions[step.index]
        subject = subjects.get(sha, "")
    else:
        sha, subject = (step.trial.patched.sha, step.trial.patched.subject) if step.trial else ("", "")
    return StepView(
        number=step.number,
        round=step.round,
        earlier=step.round != bisection.round,
        kind=step.kind,
        sha=sha,
        subject=subject,
        answer=step.answer,
        ratio=step.ratio,
        reason=step.reason,
    )

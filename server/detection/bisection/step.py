"""Steps of a bisection: asked for as a trial or answered by what is known, what their trials say and cost."""

import math
from dataclasses import dataclass

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet

from server.core.errors import DomainError
from server.core.tasks import enqueue
from server.detection.bisection.knowledge import Kind as KnowledgeKind
from server.detection.bisection.knowledge import builds_for, does_not_build, lock
from server.detection.bisection.walk import cell_in_full
from server.detection.findings.vector import as_speed
from server.detection.models import Bisection, BisectionState, BisectionStep, Comparison, Finding, Verdict
from server.detection.trials.scope import has_told, is_same_code
from server.lab.models import Boot, BootState, Session, Trial
from server.lab.trials.question import USUAL_LOOKS, Ask, spent, want_trial
from server.sources.models import Revision

Kind = BisectionStep.Kind
_HOUR = 3600.0
# The statistics take fractions below 1: what more than doubled is told by this limit as well.
_LARGEST_EFFECT = 0.9


def ask_step(
    bisection: Bisection,
    kind: str,
    *,
    base: Revision,
    patched: Revision,
    index: int | None,
    min_effect: float | None,
) -> BisectionStep:
    """Have `patched` measured against `base` on the bisection's machine, in the case of its target alone.

    `min_effect` None: that of the cell. DomainError `budget-spent` when the bisection has no machine time left.
    """
    left = seconds_left(bisection)
    if left <= 0:
        raise DomainError("budget-spent", f"{settings.BISECT_HOURS:g} hours of machine time are spent")
    number = _next_number(bisection)
    case = bisection.target.case
    trial = want_trial(
        Ask(
            key=f"bisection:{bisection.pk}:{number}",
            purpose=Trial.Purpose.REVERT if kind == Kind.REVERT else Trial.Purpose.BISECT,
            base=base,
            patched=patched,
            looks=USUAL_LOOKS,
            trace=bisection.trace,
            series=bisection.finding.series,
            machines=(bisection.machine,),
            benchmarks=(f"{case.benchmark.name}/{case.name}",),
            min_effect=min_effect,
            budget_seconds=left,
        )
    )
    return BisectionStep.objects.create(
        bisection=bisection, number=number, round=bisection.round, kind=kind, index=index, trial=trial
    )


def known_step(bisection: Bisection, kind: str, *, index: int | None, like: BisectionStep) -> BisectionStep:
    """A step that needs no machine: its answer, ratio, reason and, where one told it, trial are those of `like`."""
    return BisectionStep.objects.create(
        bisection=bisection,
        number=_next_number(bisection),
        round=bisection.round,
        kind=kind,
        index=index,
        trial=like.trial,
        answer=like.answer,
        ratio=like.ratio,
        reason=like.reason,
    )


def half_effect(bisection: Bisection) -> float:
    """Half of the change between the ends, on logs, as a fraction: what lies below is good, what lies above is bad."""
    return min(math.expm1(abs(bisection.effect) / 2), _LARGEST_EFFECT)


def seconds_left(bisection: Bisection) -> float:
    """Machine time that the steps of this round may still take."""
    granted: float = settings.BISECT_HOURS * _HOUR
    return granted - spent(_made_for(bisection.current_steps())).seconds


def own_trials(bisection: Bisection, *, told: bool = False) -> list[int]:
    """Ids of the trials that were made for it, in all rounds; the finding's own, which may tell ends, is none.

    `told`: of those only that gave a ratio.
    """
    steps = bisection.steps.all()
    return _made_for(steps.filter(ratio__isnull=False) if told else steps)


def _made_for(steps: QuerySet[BisectionStep]) -> list[int]:
    asked = steps.filter(trial__purpose__in=[Trial.Purpose.BISECT, Trial.Purpose.REVERT])
    return sorted(set(asked.values_list("trial_id", flat=True)))


def _next_number(bisection: Bisection) -> int:
    last = bisection.steps.order_by("-number").first()
    return last.number + 1 if last else 1


Answer = BisectionStep.Answer


@dataclass(frozen=True)
class Reading:
    """`ratio` is patched / base in the target's metric; None where nothing was measured."""

    answer: str
    ratio: float | None
    reason: str


def read_trial(bisection: Bisection, trial: Trial) -> Reading:
    """BAD where the target cell moved as it did between the ends, GOOD where it did not, or moved the other way.

    A kernel that does not build, boot or run the case is skipped; what the lab itself could not measure is unsure,
    without a ratio.
    """
    session = trial.sessions.filter(machine=bisection.machine).first()
    if session is None or not has_told(session):
        return _not_measured(bisection, trial, session)
    if is_same_code(session) or session.base_build_id == session.patched_build_id:
        return Reading(Answer.GOOD, 1.0, "the same code as what it was measured against")
    target = bisection.target
    row = (
        Comparison.objects.select_related("metric")
        .filter(session=session, case=target.case, metric=target.metric, core_type=target.core_type)
        .first()
    )
    if row is None or row.ratio is None:
        return _silent(session, row)
    return _read(row, bisection.effect)


def _read(row: Comparison, effect: float) -> Reading:
    ratio = row.ratio
    assert ratio is not None
    told = as_speed(ratio, row.metric.better)
    if row.verdict == Verdict.UNCHANGED:
        return Reading(Answer.GOOD, ratio, f"at {told} it is unchanged")
    if row.verdict == Verdict.INCONCLUSIVE:
        return Reading(Answer.UNSURE, ratio, f"at {told} it cannot be told: {row.reason}")
    if (ratio > 1) == (effect > 0):
        return Reading(Answer.BAD, ratio, f"at {told} it has the change")
    # Not half way to the bad end, which is all that is asked: between here and there it must be crossed.
    return Reading(Answer.GOOD, ratio, f"at {told} it changed the other way")


def _silent(session: Session, row: Comparison | None) -> Reading:
    """A case that gave values with the base kernel alone fails for the other one's sake."""
    if row is not None and row.base_boots and not row.patched_boots:
        return Reading(Answer.SKIPPED, None, row.reason or "its case gives no values there")
    return Reading(Answer.UNSURE, None, (row and row.reason) or f"{session} gave no values of its case")


def _not_measured(bisection: Bisection, trial: Trial, session: Session | None) -> Reading:
    tree = trial.patched.tree_sha
    build = builds_for(bisection, {tree}).get(tree)
    if build is not None and does_not_build(build):
        return Reading(Answer.SKIPPED, None, f"does not build: {build.reason}")
    if session is not None and _does_not_boot(session):
        return Reading(Answer.SKIPPED, None, f"does not boot: {session.reason}")
    why = (session and session.reason) or trial.reason or f"its trial is {trial.state}"
    return Reading(Answer.UNSURE, None, f"not measured: {why}")


def _does_not_boot(session: Session) -> bool:
    """The machine and the base kernel work, and this kernel gave nothing in any boot that was tried."""
    boots = set(session.boots.values_list("arm", "state"))
    patched = {state for arm, state in boots if arm == Boot.Arm.PATCHED}
    works = (Boot.Arm.BASE, BootState.MEASURED) in boots
    return works and BootState.FAILED in patched and BootState.MEASURED not in patched


def answer_bisection(trial: Trial) -> None:
    """Write what it told into the steps that asked; the sweep of bisections, woken up here, goes on from there.

    A trial of purpose PATCH has no step: its walk is read from its comparisons (walk.py).
    """
    asked = BisectionStep.objects.filter(trial=trial, answer="").values_list("bisection_id", "pk")
    for bisection_id, step_id in sorted(asked):
        answer_step(bisection_id, step_id)


def answer_step(bisection_id: int, step_id: int) -> None:
    """Take up the answer of one step whose trial is over."""
    with transaction.atomic():
        bisection = lock(bisection_id)
        step = bisection.steps.select_related("trial__patched").filter(pk=step_id, answer="").first()
        if step is None or step.trial is None:
            return
        told = read_trial(bisection, step.trial)
        step.answer, step.ratio, step.reason = told.answer, told.ratio, told.reason
        step.save(update_fields=["answer", "ratio", "reason"])
        enqueue("detection.tend", "bisections")


# After the search: the culprit against its parent, and what is left without it.
_CHECKS = 2


@dataclass(frozen=True)
class StepView:
    """`answer` is empty while it is being measured; `sha` is empty for a revert that was not made.

    `earlier`: of a search that ended without an answer, before it was begun once more. `index` counts from the good
    end of the range.
    """

    number: int
    round: int
    earlier: bool
    kind: str
    index: int | None
    sha: str
    subject: str
    answer: str
    ratio: float | None
    reason: str


@dataclass(frozen=True)
class BisectionProgress:
    """`effect` is bad / good; `total` revisions follow the good end, the bad one is the last of them; `left` counts
    those that may be it, from `first_sha` to `last_sha`.

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
    total: int
    left: int
    first_sha: str
    last_sha: str
    steps_left: int
    seconds_left: float | None
    culprit_sha: str
    culprit_subject: str


def bisections_of(finding: Finding) -> tuple[BisectionProgress, ...]:
    rows = finding.bisections.select_related(
        "machine__uarch", "culprit", "target__metric", "target__case__benchmark", "target__core_type"
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
        cell=cell_in_full(bisection.target),
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
        total=len(bisection.revisions) - 1,
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
    checks = _CHECKS - len(told & {KnowledgeKind.CULPRIT, KnowledgeKind.REVERT})
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
        index=step.index,
        sha=sha,
        subject=subject,
        answer=step.answer,
        ratio=step.ratio,
        reason=step.reason,
    )

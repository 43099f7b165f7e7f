"""The steps of a bisection with the figures of the boots that answered them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from server.dashboard.pictures.small import ANSWERS
from server.detection.bisection.step import BisectionProgress, StepView
from server.detection.findings.vector import as_speed
from server.detection.models import Bisection, Comparison, Finding
from server.detection.models.finding import BisectionStep


class _Target(NamedTuple):
    """The cell whose change is looked for."""

    machine: int
    case: int
    metric: int
    core_type: int
    better: str


@dataclass(frozen=True, slots=True)
class SearchStepLine:
    """`note` says whose boots answered it where they are not its own."""

    step: StepView
    kind: str
    answer: str
    speed: str
    low: float | None
    high: float | None
    boots: str
    note: str


def step_lines(finding: Finding, searches: Sequence[BisectionProgress]) -> dict[int, tuple[SearchStepLine, ...]]:
    """By bisection. Three queries, however many there are."""
    columns = ("pk", "machine", "target__case", "target__metric", "target__core_type", "target__metric__better")
    rows = Bisection.objects.filter(finding=finding).values_list(*columns)
    targets = {row[0]: _Target(*row[1:]) for row in rows}
    steps = BisectionStep.objects.filter(bisection__in=targets, trial__isnull=False)
    trials = {(of, number): trial for of, number, trial in steps.values_list("bisection", "number", "trial")}
    cells = _cells(set(trials.values()), targets)
    return {
        one.id: _lines(one, targets[one.id], trials, cells, finding.trial_id) for one in searches if one.id in targets
    }


# What changed may have become better: no end is the good one.
_KINDS = {
    BisectionStep.Kind.ENDS.value: "both ends",
    BisectionStep.Kind.MIDDLE.value: "a revision between",
    BisectionStep.Kind.CULPRIT.value: "the culprit beside its parent",
    BisectionStep.Kind.REVERT.value: "the end with it, the culprit reverted",
}
_Cells = Mapping[tuple[int, int, int, int, int], Comparison]


def _cells(trials: set[int], targets: Mapping[int, _Target]) -> _Cells:
    found = Comparison.objects.filter(
        session__trial__in=trials,
        case__in={one.case for one in targets.values()},
        metric__in={one.metric for one in targets.values()},
    ).select_related("session")
    return {
        (cell.session.trial_id or 0, cell.session.machine_id, cell.case_id, cell.metric_id, cell.core_type_id): cell
        for cell in found
    }


def _lines(
    search: BisectionProgress, target: _Target, trials: Mapping[tuple[int, int], int], cells: _Cells, own: int | None
) -> tuple[SearchStepLine, ...]:
    lines: list[SearchStepLine] = []
    first: dict[int, int] = {}
    for step in search.steps:
        trial = trials.get((search.id, step.number))
        cell = cells.get((trial, *target[:4])) if trial is not None and step.ratio is not None else None
        told = cell is not None and cell.ratio is not None
        note = ""
        if trial is not None:
            known = first.setdefault(trial, step.number)
            same = f"the same boots as step {known}" if known != step.number else ""
            note = "the finding's own boots" if trial == own else same
        lines.append(
            SearchStepLine(
                step=step,
                kind=_KINDS.get(step.kind, step.kind),
                answer=ANSWERS.get(step.answer, step.answer) if step.answer else "being measured",
                speed=as_speed(step.ratio, target.better) if step.ratio is not None else "",
                low=cell.ratio_low if told and cell else None,
                high=cell.ratio_high if told and cell else None,
                boots=f"{cell.base_boots}+{cell.patched_boots}" if told and cell else "",
                note=note,
            )
        )
    return tuple(lines)

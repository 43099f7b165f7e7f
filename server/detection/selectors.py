"""What pages, the API and mails show of a finding."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet

from server.detection.lifecycle.hearing import heard
from server.detection.models import Comparison, Finding, FindingVerdict, Verdict
from server.detection.scope import is_same_code
from server.lab.models import Session


@dataclass(frozen=True)
class CellView:
    """One comparison with the names of what was compared; ratios are patched / base."""

    comparison_id: int
    machine: str
    uarch: str
    clock: str
    virtual: bool
    benchmark: str
    case: str
    metric: str
    unit: str
    better: str
    core_type: str
    verdict: str
    reason: str
    base_boots: int
    base_mean: float | None
    base_sd: float | None
    patched_boots: int
    patched_mean: float | None
    patched_sd: float | None
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    p_value: float | None
    p_adjusted: float | None
    p_rank: float | None
    family_size: int
    min_effect: float
    mde: float | None
    flags: tuple[str, ...]


@dataclass(frozen=True)
class Component:
    """The verdict for one microarchitecture; `cell` is the one that moved most there, if any was measured."""

    uarch: str
    title: str
    verdict: str
    reason: str
    mde: float | None
    cell: CellView | None


@dataclass(frozen=True)
class MachineColumn:
    session_id: int
    machine: str
    uarch: str
    clock: str
    virtual: bool
    state: str
    reason: str
    same_code: bool


@dataclass(frozen=True)
class CaseRow:
    """One (case, metric, core type), with a cell or None for each machine of the table."""

    benchmark: str
    case: str
    title: str
    metric: str
    unit: str
    better: str
    core_type: str
    cells: tuple[CellView | None, ...]

    @property
    def moved(self) -> bool:
        return any(cell is not None and cell.verdict in (Verdict.REGRESSED, Verdict.IMPROVED) for cell in self.cells)


@dataclass(frozen=True)
class ComparisonTable:
    machines: tuple[MachineColumn, ...]
    rows: tuple[CaseRow, ...]


_CELL_NAMES = ("session__machine__uarch", "case__benchmark", "metric", "core_type")


def finding_vector(finding: Finding) -> tuple[Component, ...]:
    """The finding's verdicts by microarchitecture, in the order of their names. One query."""
    cell = [f"comparison__{name}" for name in _CELL_NAMES]
    rows = FindingVerdict.objects.filter(finding=finding).select_related("uarch", *cell).order_by("uarch__name")
    return tuple(
        Component(
            uarch=row.uarch.name,
            title=row.uarch.title,
            verdict=row.verdict,
            reason=row.reason,
            mde=row.mde,
            cell=cell_view(row.comparison) if row.comparison else None,
        )
        for row in rows
    )


def sessions_of(finding: Finding) -> QuerySet[Session]:
    """The sessions that a finding speaks about; of a change that is only suspected there are none."""
    if finding.trial_id is not None:
        return Session.objects.filter(trial=finding.trial_id)
    if finding.series_id is not None:
        return Session.objects.filter(series=finding.series_id)
    return Session.objects.none()


def comparison_table(of: QuerySet[Session], checks: Sequence[Mapping[str, Any]] = ()) -> ComparisonTable:
    """All judged cells of these sessions: rows are cases, columns are their machines. Two queries.

    With the `checks` of a finding the cells are as it hears them: what one that failed took away is inconclusive.
    """
    sessions = list(of.select_related("machine__uarch").order_by("machine__uarch__name", "machine__name"))
    comparisons = (
        Comparison.objects.filter(session__in=sessions)
        .select_related(*_CELL_NAMES)
        .order_by("case__benchmark__name", "case__name", "metric__name", "core_type__name")
    )
    rows: dict[tuple[int, int, str], dict[int, Comparison]] = {}
    for comparison in heard(list(comparisons), checks):
        key = (comparison.case_id, comparison.metric_id, comparison.core_type.name)
        rows.setdefault(key, {})[comparison.session_id] = comparison
    return ComparisonTable(
        machines=tuple(_column(session) for session in sessions),
        rows=tuple(_row(cells, sessions) for cells in rows.values()),
    )


def session_cells(session_id: int) -> tuple[CellView, ...]:
    """The judged cells of one session, by case. One query."""
    comparisons = Comparison.objects.filter(session=session_id).select_related(*_CELL_NAMES)
    order = ("case__benchmark__name", "case__name", "metric__name", "core_type__name")
    return tuple(cell_view(row) for row in comparisons.order_by(*order))


def _column(session: Session) -> MachineColumn:
    machine = session.machine
    return MachineColumn(
        session_id=session.pk,
        machine=machine.name,
        uarch=machine.uarch.name,
        clock=machine.clock,
        virtual=machine.virtual,
        state=session.state,
        reason=session.reason,
        same_code=is_same_code(session),
    )


def _row(cells: dict[int, Comparison], sessions: list[Session]) -> CaseRow:
    first = next(iter(cells.values()))
    return CaseRow(
        benchmark=first.case.benchmark.name,
        case=first.case.name,
        title=first.case.title,
        metric=first.metric.name,
        unit=first.metric.unit,
        better=first.metric.better,
        core_type=first.core_type.name,
        cells=tuple(cell_view(cells[session.pk]) if session.pk in cells else None for session in sessions),
    )


def cell_view(row: Comparison) -> CellView:
    machine = row.session.machine
    return CellView(
        comparison_id=row.pk,
        machine=machine.name,
        uarch=machine.uarch.name,
        clock=machine.clock,
        virtual=machine.virtual,
        benchmark=row.case.benchmark.name,
        case=row.case.name,
        metric=row.metric.name,
        unit=row.metric.unit,
        better=row.metric.better,
        core_type=row.core_type.name,
        verdict=row.verdict,
        reason=row.reason,
        base_boots=row.base_boots,
        base_mean=row.base_mean,
        base_sd=row.base_sd,
        patched_boots=row.patched_boots,
        patched_mean=row.patched_mean,
        patched_sd=row.patched_sd,
        ratio=row.ratio,
        ratio_low=row.ratio_low,
        ratio_high=row.ratio_high,
        p_value=row.p_value,
        p_adjusted=row.p_adjusted,
        p_rank=row.p_rank,
        family_size=row.family_size,
        min_effect=row.min_effect,
        mde=row.mde,
        flags=tuple(row.flags),
    )

"""Findings as a word, a headline and chips; verdicts as tables whose figures line up."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from django.db.models import Prefetch

from server.dashboard.rows import figures
from server.detection.findings.table import CaseRow, ComparisonTable, MachineColumn
from server.detection.findings.vector import SPLIT, Coverage, as_speed
from server.detection.models import Comparison, Finding, FindingVerdict, Verdict
from server.detection.models.finding import CHANGES


@dataclass(frozen=True, slots=True)
class Chip:
    uarch: str
    verdict: str
    reason: str
    ratio: float | None
    # Where nothing moved: how much was told, as in "28 of 50 cells within 2.0 %".
    seen: str = ""
    # As in "1.71x slower".
    speed: str = ""


@dataclass(frozen=True, slots=True)
class FindingBrief:
    id: int
    kind: str
    state: str
    state_label: str
    reason: str
    headline: str
    virtual: bool
    identical: bool
    chips: tuple[Chip, ...]
    created_at: datetime

    @property
    def state_word(self) -> str:
        """What claims nothing has nothing that was confirmed."""
        quiet = self.kind in (Finding.Kind.UNCHANGED, Finding.Kind.INCONCLUSIVE)
        return "judged" if quiet and self.state == Finding.State.CONFIRMED else self.state


_MOVED = (*CHANGES, SPLIT)
# Verdicts that ask for a reader's attention stand first.
VERDICT_ORDER = ("regressed", "split", "improved", "inconclusive", "unchanged")


def with_verdicts() -> "Prefetch[str]":
    """What a query of findings must fetch so that `finding_brief` asks the database nothing more."""
    return Prefetch("verdicts", queryset=FindingVerdict.objects.select_related("uarch", "comparison__metric"))


def finding_brief(finding: Finding) -> FindingBrief:
    return FindingBrief(
        id=finding.pk,
        kind=finding.kind,
        state=finding.state,
        state_label=Finding.State(finding.state).label,
        reason=finding.reason,
        headline=finding.headline,
        virtual=finding.virtual,
        identical=finding.identical,
        chips=chips(finding.verdicts.all()),
        created_at=finding.created_at,
    )


def chips(verdicts: Iterable[FindingVerdict]) -> tuple[Chip, ...]:
    made = (
        Chip(
            uarch=row.uarch.name,
            verdict=row.verdict,
            reason=row.reason,
            ratio=row.comparison.ratio if row.comparison else None,
            seen="" if row.verdict in _MOVED else Coverage.of(row).brief,
            speed=_speed(row.comparison),
        )
        for row in verdicts
    )
    return tuple(sorted(made, key=lambda chip: (VERDICT_ORDER.index(chip.verdict), chip.uarch)))


def _speed(cell: Comparison | None) -> str:
    return as_speed(cell.ratio, cell.metric.better) if cell is not None and cell.ratio is not None else ""


def briefs_by_series(series_ids: Sequence[int]) -> dict[int, FindingBrief]:
    """The findings of these series, in two queries."""
    findings = Finding.objects.filter(series_id__in=series_ids).defer(*Finding.LONG).prefetch_related(with_verdicts())
    return {finding.series_id: finding_brief(finding) for finding in findings if finding.series_id is not None}


@dataclass(frozen=True, slots=True)
class UarchColumns:
    """The machines of one microarchitecture."""

    uarch: str
    machines: tuple[MachineColumn, ...]


@dataclass(frozen=True, slots=True)
class CaseVerdicts:
    case: CaseRow
    # A machine without a cell says why in its column.
    cells: tuple[tuple[MachineColumn, Comparison | None], ...]


@dataclass(frozen=True, slots=True)
class FiguresRow:
    """One comparison with its absolute figures, as wide as the column they stand in."""

    cell: Comparison
    base: str
    base_sd: str
    patched: str
    patched_sd: str


@dataclass(frozen=True, slots=True)
class Matrix:
    groups: tuple[UarchColumns, ...]
    rows: tuple[CaseVerdicts, ...]
    lines: tuple[FiguresRow, ...]
    family_size: int
    # Rows that are not among these.
    unshown: int


def verdict_matrix(table: ComparisonTable) -> Matrix:
    """Cases where something moved come first, then those that stayed open."""
    groups = groupby(table.machines, key=lambda machine: machine.uarch)
    rows = sorted(table.rows, key=_rank)
    cells = [cell for row in rows for cell in row.cells if cell]
    return Matrix(
        groups=tuple(UarchColumns(uarch, tuple(machines)) for uarch, machines in groups),
        rows=tuple(CaseVerdicts(row, tuple(zip(table.machines, row.cells, strict=True))) for row in rows),
        lines=lines(cells),
        family_size=max((cell.family_size for cell in cells), default=0),
        unshown=table.unshown,
    )


def lines(cells: Sequence[Comparison]) -> tuple[FiguresRow, ...]:
    decimals = _decimals(cells)
    return tuple(_line(cell, decimals[cell.metric.unit]) for cell in cells)


def _line(cell: Comparison, decimals: int) -> FiguresRow:
    means = (cell.base_mean, cell.base_sd, cell.patched_mean, cell.patched_sd)
    return FiguresRow(cell, *(figures.fixed(value, decimals) for value in means))


def _decimals(cells: Sequence[Comparison]) -> Mapping[str, int]:
    """By unit, so that all means in one unit line up."""
    return {
        unit: figures.decimals_for(
            mean for cell in cells if cell.metric.unit == unit for mean in (cell.base_mean, cell.patched_mean)
        )
        for unit in {cell.metric.unit for cell in cells}
    }


def _rank(row: CaseRow) -> int:
    verdicts = {cell.verdict for cell in row.cells if cell is not None}
    if verdicts & {Verdict.REGRESSED, Verdict.IMPROVED}:
        return 0
    return 1 if Verdict.INCONCLUSIVE in verdicts else 2

"""Verdicts as tables whose figures line up: rows are cases, columns are machines grouped by microarchitecture."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from server.dashboard import figures
from server.detection.models import Verdict
from server.detection.selectors import CaseRow, CellView, ComparisonTable, MachineColumn


@dataclass(frozen=True, slots=True)
class Group:
    """The machines of one microarchitecture."""

    uarch: str
    machines: tuple[MachineColumn, ...]


@dataclass(frozen=True, slots=True)
class Row:
    case: CaseRow
    # A machine without a cell says why in its column.
    cells: tuple[tuple[MachineColumn, CellView | None], ...]


@dataclass(frozen=True, slots=True)
class Line:
    """One comparison with its absolute figures, as wide as the column they stand in."""

    cell: CellView
    session_id: int
    base: str
    base_sd: str
    patched: str
    patched_sd: str


@dataclass(frozen=True, slots=True)
class Matrix:
    groups: tuple[Group, ...]
    rows: tuple[Row, ...]
    lines: tuple[Line, ...]
    family_size: int
    # Rows that are not among these.
    unshown: int


def verdict_matrix(table: ComparisonTable) -> Matrix:
    """Cases where something moved come first, then those that stayed open."""
    groups = groupby(table.machines, key=lambda machine: machine.uarch)
    rows = sorted(table.rows, key=_rank)
    cells = [(machine, cell) for row in rows for machine, cell in zip(table.machines, row.cells, strict=True) if cell]
    return Matrix(
        groups=tuple(Group(uarch, tuple(machines)) for uarch, machines in groups),
        rows=tuple(Row(row, tuple(zip(table.machines, row.cells, strict=True))) for row in rows),
        lines=lines([cell for _, cell in cells], [machine.session_id for machine, _ in cells]),
        family_size=max((cell.family_size for _, cell in cells), default=0),
        unshown=table.unshown,
    )


def lines(cells: Sequence[CellView], session_ids: Iterable[int]) -> tuple[Line, ...]:
    decimals = _decimals(cells)
    return tuple(
        _line(cell, session_id, decimals[cell.unit]) for cell, session_id in zip(cells, session_ids, strict=True)
    )


def _line(cell: CellView, session_id: int, decimals: int) -> Line:
    means = (cell.base_mean, cell.base_sd, cell.patched_mean, cell.patched_sd)
    return Line(cell, session_id, *(figures.fixed(value, decimals) for value in means))


def _decimals(cells: Sequence[CellView]) -> Mapping[str, int]:
    """By unit, so that all means in one unit line up."""
    return {
        unit: figures.decimals_for(
            mean for cell in cells if cell.unit == unit for mean in (cell.base_mean, cell.patched_mean)
        )
        for unit in {cell.unit for cell in cells}
    }


def _rank(row: CaseRow) -> int:
    verdicts = {cell.verdict for cell in row.cells if cell is not None}
    if verdicts & {Verdict.REGRESSED, Verdict.IMPROVED}:
        return 0
    return 1 if Verdict.INCONCLUSIVE in verdicts else 2

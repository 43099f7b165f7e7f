"""The numbers of a report: one table over microarchitectures, and a line for each cell that moved."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from server.detection.headline import as_percent, as_ratio
from server.detection.models import Comparison, Verdict
from server.reports.plaintext import cut, number, plain, table, wrap

_LETTER = {Verdict.REGRESSED: "R", Verdict.IMPROVED: "I"}
# A table rather leaves out columns than shows fewer rows than this.
_FEW_ROWS = 3
_NAME_WIDTH = 34

Cell = Callable[[Comparison], str]


def moved_table(comparisons: Sequence[Comparison], moved: Sequence[Comparison], most: int) -> list[str]:
    """At most `most` lines. Rows: what moved, largest movement first. Columns: every judged microarchitecture."""
    order = sorted(moved, key=_movement, reverse=True)
    return _table(comparisons, list(dict.fromkeys(_row_name(row) for row in order)), _moved_cell, most)


def coverage_table(comparisons: Sequence[Comparison], most: int) -> list[str]:
    """At most `most` lines. Rows: what was measured. Each field is the smallest change that would have been seen."""
    names = sorted({_row_name(row) for row in comparisons})
    return _table(comparisons, names, _seen_cell, most)


def moved_details(moved: Sequence[Comparison], columns: dict[int, str], most: int) -> list[str]:
    """Two lines for each cell: its name, and absolute numbers beside the ratio; as many as fit into `most` lines."""
    order = sorted(moved, key=_movement, reverse=True)
    room = len(order) if 2 * len(order) <= most else max(1, (most - 1) // 2)
    lines = []
    for row in order[:room]:
        better = row.metric.get_better_display()
        lines.append(cut(f"{columns[row.pk]}, {_row_name(row)} ({better}, {row.verdict}):", 72))
        lines.append(f"  {_numbers(row)}")
    if room < len(order):
        lines.append(f"... and {len(order) - room} more cells on the page of the series.")
    return lines


def coverage_lines(comparisons: Sequence[Comparison], columns: dict[int, str]) -> list[str]:
    """For each column how many cells were judged how, and what an unchanged one would have shown."""
    by_column: dict[str, list[Comparison]] = defaultdict(list)
    for row in comparisons:
        by_column[columns[row.pk]].append(row)
    lines = []
    for name, rows in by_column.items():
        counts = Counter(row.verdict for row in rows)
        told = [f"{counts[verdict]} {verdict}" for verdict in Verdict.values if counts[verdict]]
        seen = [row.mde for row in rows if row.verdict == Verdict.UNCHANGED and row.mde is not None]
        mde = f"; would have seen {as_percent(max(seen))}" if seen else ""
        lines += wrap(f"{name}: {', '.join(told)}{mde}", first="  ", indent="    ", most=2)
    return lines


def column_names(comparisons: Sequence[Comparison]) -> dict[int, str]:
    """For each comparison the name of its column: the microarchitecture, made longer where that is ambiguous."""
    machines: dict[str, set[str]] = defaultdict(set)
    cores: dict[str, set[str]] = defaultdict(set)
    for row in comparisons:
        machines[row.session.machine.uarch.name].add(row.session.machine.name)
        cores[row.session.machine.name].add(row.core_type.name)
    names = {}
    for row in comparisons:
        machine = row.session.machine
        name = machine.uarch.name if len(machines[machine.uarch.name]) == 1 else machine.name
        names[row.pk] = plain(f"{name}/{row.core_type.name}" if len(cores[machine.name]) > 1 else name)
    return names


def _table(comparisons: Sequence[Comparison], names: list[str], cell: Cell, most: int) -> list[str]:
    columns = column_names(comparisons)
    fields = {(_row_name(row), columns[row.pk]): cell(row) for row in comparisons}
    head = sorted(dict.fromkeys(columns.values()), key=lambda name: _rank(name, comparisons, columns))
    rows = [(cut(name, _NAME_WIDTH), [fields.get((name, column), "-") for column in head]) for name in names]
    room, shown = 0, len(head) + 1
    while shown > 1 and room < min(len(rows), _FEW_ROWS):
        shown -= 1
        # Columns that do not fit beside the others stand below them, and cost rows.
        blocks = len(_part(head, rows, shown)) // (len(rows) + 1)
        room = (most - 1) // blocks - 1
    lines = _part(head, rows[:room], shown)
    left = [f"{len(rows) - room} more rows"] if len(rows) > room else []
    left += [f"{len(head) - shown} more columns"] if len(head) > shown else []
    return [*lines, f"... {' and '.join(left)} on the page of the series."] if left else lines


def _part(head: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]], columns: int) -> list[str]:
    return table(head[:columns], [(name, cells[:columns]) for name, cells in rows])


def _rank(name: str, comparisons: Sequence[Comparison], columns: dict[int, str]) -> tuple[int, str]:
    """Columns in which something moved first: they must not be among the ones that are left out."""
    moved = any(columns[row.pk] == name and row.verdict in _LETTER for row in comparisons)
    return (0 if moved else 1, name)


def _moved_cell(row: Comparison) -> str:
    if row.verdict in _LETTER and row.ratio is not None:
        return f"{as_ratio(row.ratio)} {_LETTER[Verdict(row.verdict)]}"
    return "=" if row.verdict == Verdict.UNCHANGED else "?"


def _seen_cell(row: Comparison) -> str:
    return as_percent(row.mde) if row.verdict == Verdict.UNCHANGED and row.mde is not None else "?"


def _row_name(row: Comparison) -> str:
    return plain(f"{row.case.benchmark.name}/{row.case.name} {row.metric.name}")


def _numbers(row: Comparison) -> str:
    """Only called for cells that moved, which are checked to have all of these."""
    base = f"{_value(row.base_mean)} +- {_value(row.base_sd)}"
    patched = f"{_value(row.patched_mean)} +- {_value(row.patched_sd)}"
    interval = f"[{_value(row.ratio_low, 3)}, {_value(row.ratio_high, 3)}]"
    boots = f"{row.base_boots}+{row.patched_boots} boots"
    return f"{base} -> {patched} {plain(row.metric.unit)}, {as_ratio(row.ratio or 0.0)} {interval}, {boots}"


def _value(value: float | None, digits: int = 0) -> str:
    assert value is not None
    return f"{value:.{digits}f}" if digits else number(value)


def _movement(row: Comparison) -> float:
    return abs(math.log(row.ratio)) if row.ratio and row.ratio > 0 else 0.0

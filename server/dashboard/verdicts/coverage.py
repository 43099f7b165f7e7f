"""How much of what was asked each microarchitecture answered: what all of them ran, and what some of them did not."""

from collections.abc import Iterable, Mapping, Sequence

from server.dashboard.pictures.axis import speed
from server.detection.findings.table import CaseRow, ComparisonTable
from server.detection.findings.vector import as_speed
from server.detection.models import Comparison, Verdict
from server.detection.models.finding import CHANGES
from server.lab.models import Machine

_MOST_NAMES = 6
_PAIR = 2


def in_common(table: ComparisonTable) -> str:
    """What each microarchitecture did in the cases that all of them ran; empty where they all ran the same.

    A headline sets the largest change of each side by side, which may be of different cases.
    """
    uarchs = _machines(table)
    if len(uarchs) < _PAIR or table.unshown:
        return ""
    shared = [row for row in table.rows if all(_of(row, numbers) for numbers in uarchs.values())]
    if len(shared) == len(table.rows) or not any(row.moved for row in table.rows):
        return ""
    who = "both" if len(uarchs) == _PAIR else f"all {len(uarchs)}"
    if not shared:
        return f"No case ran on {who}: what stands above is of different cases."
    told = [f"{name} {_did([cell for row in shared for cell in _of(row, own)])}" for name, own in uarchs.items()]
    cases = "the case" if len(shared) == 1 else f"the {len(shared)} cases"
    return f"On {cases} of {len(table.rows)} that {who} ran: {', '.join(told)}."


def _machines(table: ComparisonTable) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for number, machine in enumerate(table.machines):
        found.setdefault(machine.uarch, []).append(number)
    return found


def _of(row: CaseRow, numbers: Iterable[int]) -> list[Comparison]:
    return [cell for number in numbers if (cell := row.cells[number]) is not None and cell.ratio is not None]


def _did(cells: Sequence[Comparison]) -> str:
    moved = [cell for cell in cells if cell.verdict in CHANGES and cell.ratio]
    if not moved:
        open_ = any(cell.verdict == Verdict.INCONCLUSIVE for cell in cells)
        return "shows none that could be told" if open_ else "no change"
    moved.sort(key=lambda cell: abs(speed(cell.ratio or 1.0, cell.metric.better) or 0.0))
    sides = []
    for change in CHANGES:
        own = [cell for cell in moved if cell.verdict == change and cell.ratio]
        ends = dict.fromkeys(as_speed(cell.ratio or 1.0, cell.metric.better) for cell in (own[:1] + own[-1:]))
        if ends:
            sides.append(_range(list(ends)))
    return " and ".join(sides)


def _range(ends: Sequence[str]) -> str:
    """`9.8 to 13 % slower`: what both ends share is said once."""
    if len(ends) == 1:
        return ends[0]
    (low, _, unit), (_high, _, other) = (end.partition(" ") for end in ends)
    words = low if unit == other else ends[0].rpartition(" ")[0]
    return f"{words} to {ends[1]}"


def not_measured(table: ComparisonTable) -> str:
    """Which microarchitectures of the site, and how many cases of the others, are left out. One query."""
    own = _machines(table)
    rows = Machine.objects.filter(enabled=True, virtual=False).exclude(uarch__name__in=own)
    others = sorted(set(rows.order_by().values_list("uarch__name", flat=True)))
    parts = [f"{_listed(others)} at all"] if others and own else []
    parts += _missing(table, own) if not table.unshown else []
    return f"Not measured: {'; '.join(parts)}." if parts else ""


def _missing(table: ComparisonTable, own: Mapping[str, Sequence[int]]) -> list[str]:
    parts = []
    for name, numbers in own.items():
        left = [row for row in table.rows if not any(row.cells[number] is not None for number in numbers)]
        if left:
            cases = _listed([f"{row.benchmark}/{row.case}" for row in left]) if len(left) <= _PAIR else ""
            parts.append(f"on {name} {cases or f'{len(left)} of {len(table.rows)} cases'}")
    return parts


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    return f"{', '.join(names[:_MOST_NAMES])}{f' and {more} more' if more > 0 else ''}"

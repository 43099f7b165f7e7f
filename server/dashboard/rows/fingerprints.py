"""The fingerprint of comparisons: a column for each microarchitecture, lines in groups of like cases, worst first."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from django.http import HttpResponse
from django.urls import reverse

from server.core.rounding import seen_effect
from server.dashboard.pictures.fingerprint import Absent, Column, Dot, Fingerprint, Group, Line, svg_of
from server.dashboard.rows import figures
from server.detection.findings.table import CaseRow, ComparisonTable, MachineColumn
from server.detection.findings.vector import as_speed
from server.detection.models import Comparison, Verdict
from server.detection.models.finding import CHANGES
from server.lab.models import Session

# Groups stand open until so many lines are shown, the first one always; with few lines in all no group is folded.
_OPEN_LINES = 9
_FEW_LINES = 16
_OWN_EFFECT = 0.01
# A mark weighs about a kilobyte; what moved least is left out first.
_MOST_MARKS = 150
_LEAST_LINES = 10
_GAPS_SHOWN = 2


@dataclass(frozen=True, slots=True)
class ColumnPlace:
    """One column: the machines of a microarchitecture (by their number in the table), or one of them."""

    title: str
    note: str
    machines: tuple[int, ...]
    href: str


def fingerprint_of(
    table: ComparisonTable,
    *,
    gaps: Sequence[Mapping[str, str]] = (),
    verdicts: Mapping[str, str] | None = None,
    href: Callable[[Comparison], str] = lambda _cell: "",
) -> Fingerprint:
    """`verdicts` by microarchitecture head the columns; `href` leads from a dot to its figures."""
    places = places_of(table)
    lines: dict[tuple[str, ...], list[tuple[CaseRow, Line]]] = defaultdict(list)
    metrics = _metrics(table.rows)
    kinds = Counter(_kind(row) for row in table.rows)
    for row in table.rows:
        title, label = _named(row, alone=kinds[_kind(row)] == 1)
        lines[title].append((row, _line(row, label, [_cell(table, row, place, gaps, href) for place in places])))
    groups = [Group(_title(title, metrics), _worst_first(rows)) for title, rows in lines.items()]
    kept = _cut(sorted(groups, key=_rank_of_group), max(_LEAST_LINES, _MOST_MARKS // max(1, len(places))))
    effects = Counter(cell.min_effect for row in table.rows for cell in row.cells if cell)
    return Fingerprint(
        columns=tuple(_column(place, table, verdicts or {}) for place in places),
        groups=_folded(kept),
        min_effect=effects.most_common(1)[0][0] if effects else _OWN_EFFECT,
        unshown=table.unshown + len(table.rows) - sum(len(group.lines) for group in kept),
    )


# Its colours stand in a style of its own, which the policy of pages forbids.
_IMAGE_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def image(picture: Fingerprint) -> HttpResponse:
    """The fingerprint as a document of its own, for who wants it elsewhere."""
    headers = {"Content-Security-Policy": _IMAGE_POLICY}
    return HttpResponse(svg_of(picture), content_type="image/svg+xml", headers=headers)


def places_of(table: ComparisonTable) -> list[ColumnPlace]:
    """Machines of one microarchitecture share a column until two of them contradict each other somewhere."""
    places = []
    numbered = enumerate(table.machines)
    for uarch, found in groupby(numbered, key=lambda one: one[1].uarch):
        machines = list(found)
        numbers = tuple(number for number, _machine in machines)
        if len(machines) > 1 and any(_contradict(row, numbers) for row in table.rows):
            places += [
                ColumnPlace(one.machine, f"{uarch}, its machines differ", (n,), _session(one)) for n, one in machines
            ]
        else:
            alone = _session(machines[0][1]) if len(machines) == 1 else ""
            places.append(ColumnPlace(uarch, _shared_note(table, numbers), numbers, alone))
    return places


def _shared_note(table: ComparisonTable, numbers: Sequence[int]) -> str:
    """Of machines in one column, which of them the figures are from; one that told nothing agrees with nobody."""
    if len(numbers) == 1:
        return table.machines[numbers[0]].machine
    telling = [number for number in numbers if any(_tells(row.cells[number]) for row in table.rows)]
    if len(telling) > 1:
        return f"{len(telling)} machines agree"
    if not telling:
        return f"{len(numbers)} machines, none could tell"
    name = table.machines[telling[0]].machine
    silent = [table.machines[number] for number in numbers if number not in telling]
    failed = [machine.machine for machine in silent if machine.state == Session.State.FAILED]
    return f"{name}; {', '.join(failed)} failed" if failed else f"{name} alone"


def _tells(cell: Comparison | None) -> bool:
    return cell is not None and cell.verdict != Verdict.INCONCLUSIVE


def _contradict(row: CaseRow, numbers: Sequence[int]) -> bool:
    told = {cell.verdict for number in numbers if (cell := row.cells[number]) is not None}
    return len(told - {Verdict.INCONCLUSIVE}) > 1


def _session(machine: MachineColumn) -> str:
    return reverse("session", args=[machine.session_id])


def spoken(row: CaseRow, place: ColumnPlace) -> Comparison | None:
    """Of machines that agree, the one that knows it best speaks; one that cannot tell is heard where none can."""
    cells = [cell for number in place.machines if (cell := row.cells[number]) is not None]
    telling = [cell for cell in cells if cell.verdict != Verdict.INCONCLUSIVE]
    return min(telling or cells, key=_width, default=None)


def _width(cell: Comparison) -> float:
    low, high = cell.ratio_low, cell.ratio_high
    return math.log(high / low) if low and high and low > 0 else math.inf


def _column(place: ColumnPlace, table: ComparisonTable, verdicts: Mapping[str, str]) -> Column:
    first = table.machines[place.machines[0]]
    note = f"{place.note}, virtual" if first.virtual else place.note
    return Column(place.title, place.title, note, verdicts.get(first.uarch, ""), place.href)


def _cell(
    table: ComparisonTable,
    row: CaseRow,
    place: ColumnPlace,
    gaps: Sequence[Mapping[str, str]],
    href: Callable[[Comparison], str],
) -> Dot | Absent:
    cell = spoken(row, place)
    if cell is None:
        machines = [table.machines[number] for number in place.machines]
        return Absent("; ".join(dict.fromkeys(why_absent(machine, gaps) for machine in machines)))
    if cell.ratio is None:
        return Absent(cell.reason or "could not be told")
    return Dot(
        ratio=cell.ratio,
        low=cell.ratio_low,
        high=cell.ratio_high,
        better=row.better,
        verdict=cell.verdict,
        said=f"{place.title}: {said(cell)}",
        href=href(cell),
        min_effect=cell.min_effect,
    )


def why_absent(machine: MachineColumn, gaps: Sequence[Mapping[str, str]]) -> str:
    """Why a machine has no figure of a case."""
    if machine.same_code:
        return "both kernels run the same code there"
    if machine.state in (Session.State.FAILED, Session.State.CANCELED):
        return f"session {machine.state}: {machine.reason or 'no reason is noted'}"
    if machine.state != Session.State.DONE:
        return f"session is {machine.state}"
    told = [gap.get("reason", "") for gap in gaps if gap.get("machine") == machine.machine]
    # A gap names one case of all that have its reason, so which of them this is cannot be told.
    shown = "; ".join(told[:_GAPS_SHOWN])
    return f"not asked there, or no value ({shown})" if told else "not asked there"


def said(cell: Comparison) -> str:
    """A cell in words, for who reads or hears it."""
    if cell.ratio is None:
        return f"could not be told: {cell.reason}" if cell.reason else "could not be told"
    boots = f"{cell.base_boots}+{cell.patched_boots} boots"
    reach = figures.interval(cell.ratio_low, cell.ratio_high)
    speed = as_speed(cell.ratio, cell.metric.better)
    if cell.verdict == Verdict.UNCHANGED:
        seen = f", would have seen {seen_effect(cell.mde)}" if cell.mde is not None else ""
        return f"no change{seen} ({speed}, {reach} of base, {boots})"
    if cell.verdict == Verdict.INCONCLUSIVE:
        return f"could not be told ({speed}, {reach} of base, {boots})"
    return f"{speed} ({absolute(cell)}, {reach} of base, {boots})"


def absolute(cell: Comparison) -> str:
    decimals = figures.decimals_for((cell.base_mean, cell.patched_mean))
    base, patched = (figures.fixed(mean, decimals) for mean in (cell.base_mean, cell.patched_mean))
    return f"{base} → {patched} {cell.metric.unit}"


_SIZE = re.compile(r"\d[\d.]*([KMGT]i?)?B?", re.IGNORECASE)
# Benchmark, metric, core type and what else the cases have in common.
_Kind = tuple[str, str, str, str]


def _kind(row: CaseRow) -> _Kind:
    words, _sizes = _split(row)
    return row.benchmark, row.metric, row.core_type, words


def _split(row: CaseRow) -> tuple[str, str]:
    """What kind of case it is, and its sizes. Benchmarks that name no parameters have them in the names of cases."""
    if row.parameters:
        told = [(str(name), str(value)) for name, value in row.parameters.items()]
        sizes = [f"{name} {value}" for name, value in told if _SIZE.fullmatch(value)]
        return ", ".join(f"{name} {value}" for name, value in told if not _SIZE.fullmatch(value)), ", ".join(sizes)
    parts = row.case.split("-")
    words = " ".join(part for part in parts if not _SIZE.fullmatch(part))
    return words.replace(" to ", " → "), " ".join(part for part in parts if _SIZE.fullmatch(part))


def _named(row: CaseRow, *, alone: bool) -> tuple[_Kind, str]:
    """The key of the line's group, and its label. Cases of which no other is like share a group of their benchmark."""
    benchmark, metric, core_type, words = _kind(row)
    _words, sizes = _split(row)
    if alone or not any(letter.isalpha() for letter in sizes):
        return (benchmark, metric, core_type, ""), row.case
    return (benchmark, metric, core_type, words), sizes


def _metrics(rows: Sequence[CaseRow]) -> dict[str, int]:
    """How many metrics each benchmark has here: one goes without saying."""
    found: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        found[row.benchmark].add(row.metric)
    return {benchmark: len(metrics) for benchmark, metrics in found.items()}


def _title(kind: tuple[str, ...], metrics: Mapping[str, int]) -> str:
    benchmark, metric, core_type, words = kind
    named = f"{benchmark}, {metric}" if metrics[benchmark] > 1 else benchmark
    cores = "" if core_type == "all" else f" on {core_type} cores"
    return f"{named}{cores}: {words}" if words else f"{named}{cores}"


def _line(row: CaseRow, label: str, cells: Sequence[Dot | Absent]) -> Line:
    about = f"{row.benchmark}/{row.case}, {row.metric}"
    parameters = tuple((str(name), str(value)) for name, value in row.parameters.items())
    return Line(label, about, tuple(cells), parameters=parameters)


_Rank = tuple[int, float, str]


def _worst_first(rows: Sequence[tuple[CaseRow, Line]]) -> tuple[Line, ...]:
    return tuple(sorted((line for _row, line in rows), key=lambda line: _rank([line], line.label)))


def _rank_of_group(group: Group) -> _Rank:
    return _rank(group.lines, group.title)


def _rank(lines: Sequence[Line], name: str) -> _Rank:
    """What disagrees in sign first, then what got slower, then faster, then what is open; the largest of each first."""
    dots = [cell for line in lines for cell in line.cells if isinstance(cell, Dot)]
    slower, faster = ([_size(dot) for dot in dots if dot.verdict == verdict] for verdict in CHANGES)
    if slower:
        return (0 if faster else 1), -max(slower), name
    if faster:
        return 2, -max(faster), name
    return (3 if any(dot.verdict == Verdict.INCONCLUSIVE for dot in dots) else 4), 0.0, name


def _size(dot: Dot) -> float:
    return abs(math.log(dot.ratio)) if dot.ratio > 0 else math.inf


def _cut(groups: Sequence[Group], most: int) -> list[Group]:
    """The first lines of groups in their order."""
    found, left = [], most
    for group in groups:
        if left > 0:
            found.append(replace(group, lines=group.lines[:left]))
        left -= len(group.lines)
    return found


def _folded(groups: Sequence[Group]) -> tuple[Group, ...]:
    if sum(len(group.lines) for group in groups) <= _FEW_LINES:
        return tuple(groups)
    found, shown = [], 0
    for number, group in enumerate(groups):
        shown += len(group.lines)
        found.append(replace(group, is_open=number == 0 or shown <= _OPEN_LINES))
    return tuple(found)

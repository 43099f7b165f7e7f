"""Counters and explaining metrics that moved where a finding's metric moved."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from server import stats
from server.detection.models import Comparison
from server.lab.models import Boot
from server.results.models import Measurement, Metric

# A counter explains a change only if it surely moved by more than counters do between two kernels for no reason.
_LEAST = 0.05
# A page shows so many of one cell, and of one finding.
_MOST_OF_CELL = 5
_MOST = 40
_LONGEST_NAME = 100
# A counter beyond this is somebody's mistake.
_LARGEST = 1e300
# Benchmark, case and core type.
_NAMES = 3

_Where = tuple[int, str, str, str]


@dataclass
class _Counted:
    """The boots' values of one counter in one cell, by arm."""

    base: list[list[float]] = field(default_factory=list)
    patched: list[list[float]] = field(default_factory=list)

    def add(self, arm: str, values: list[float]) -> None:
        (self.base if arm == Boot.Arm.BASE else self.patched).append(values)


def counters_beside(changed: Sequence[Comparison]) -> list[dict[str, Any]]:
    """Rows for `Finding.counters`: those whose 95 % interval lies beyond 5 % of 1, per machine and changed case.

    Boots are the unit, as everywhere: a counter is compared over the boots' values, judged by nobody and part of no
    family. What moved most comes first. Two queries for any number of cells.
    """
    cells: dict[_Where, Comparison] = {}
    for row in changed:
        cells.setdefault((row.session_id, row.case.benchmark.name, row.case.name, row.core_type.name), row)
    found = _from_conditions(cells) | _from_measurements(cells)
    names = sorted(name for name, counted in found.items() if counted.base and counted.patched)
    results = stats.compare([_cell(found[name]) for name in names])
    moved: dict[_Where, list[tuple[str, stats.Comparison]]] = defaultdict(list)
    for (where, counter), result in zip(names, results, strict=True):
        if _has_moved(result):
            moved[where].append((counter, result))
    rows = []
    for where in sorted(moved):
        strongest = sorted(moved[where], key=lambda one: -_movement(one[1].ratio))[:_MOST_OF_CELL]
        rows += [_row(cells[where], counter, result) for counter, result in strongest]
    return sorted(rows, key=lambda row: -_movement(row["ratio"]))[:_MOST]


def _from_conditions(cells: Mapping[_Where, Comparison]) -> dict[tuple[_Where, str], _Counted]:
    """What `perf stat` counted in runs of its own, as the agent told it with each boot."""
    found: dict[tuple[_Where, str], _Counted] = defaultdict(_Counted)
    boots = _measured_boots(cells).values_list("session_id", "arm", "conditions__document__counters")
    for session_id, arm, told in boots.order_by("session_id", "position"):
        for where, event, value in _entries(session_id, told):
            if where in cells:
                found[where, event].add(arm, [value])
    return dict(found)


def _entries(session_id: int, told: Any) -> Iterator[tuple[_Where, str, float]]:
    """Agents wrote this: what has another shape is passed over."""
    for entry in told if isinstance(told, list) else ():
        if not isinstance(entry, Mapping):
            continue
        value, event = _number(entry.get("value")), entry.get("event")
        names = [name for key in ("benchmark", "case", "core_type") if isinstance(name := entry.get(key), str)]
        if value is not None and isinstance(event, str) and event and len(names) == _NAMES:
            benchmark, case, core_type = names
            yield (session_id, benchmark, case, core_type), event[:_LONGEST_NAME], value


def _number(told: Any) -> float | None:
    known = isinstance(told, int | float) and not isinstance(told, bool)
    return float(told) if known and abs(told) < _LARGEST else None


def _from_measurements(cells: Mapping[_Where, Comparison]) -> dict[tuple[_Where, str], _Counted]:
    found: dict[tuple[_Where, str], _Counted] = defaultdict(_Counted)
    rows = Measurement.objects.filter(
        boot__in=_measured_boots(cells),
        metric__better=Metric.Better.NONE,
        case__in={row.case_id for row in cells.values()},
    )
    names = ("boot__session_id", "case__benchmark__name", "case__name", "core_type__name", "metric__name", "boot__arm")
    for *place, metric, arm, values, warmup in rows.order_by("boot__position").values_list(*names, "values", "warmup"):
        session_id, benchmark, case, core_type = place
        where = (session_id, benchmark, case, core_type)
        if where in cells:
            found[where, metric].add(arm, values[warmup:])
    return dict(found)


def _measured_boots(cells: Mapping[_Where, Comparison]) -> Any:
    return Boot.objects.filter(session__in={where[0] for where in cells}, state=Boot.State.MEASURED)


def _cell(counted: _Counted) -> stats.Cell:
    # A counter has no better direction; the ratio and its interval do not depend on it.
    return stats.Cell(base=counted.base, patched=counted.patched, better="lower", min_effect=_LEAST)


def _has_moved(result: stats.Comparison) -> bool:
    low, high = result.ratio_low, result.ratio_high
    return low is not None and high is not None and (low > 1 + _LEAST or high < 1 - _LEAST)


def _movement(ratio: float | None) -> float:
    return abs(math.log(ratio)) if ratio else 0.0


def _row(cell: Comparison, counter: str, result: stats.Comparison) -> dict[str, Any]:
    machine, case = cell.session.machine, cell.case
    assert result.ratio is not None
    told = f"{counter} is {result.ratio:.2f}x ({result.ratio_low:.2f}x to {result.ratio_high:.2f}x)"
    beside = f" where {cell.metric.name} is {cell.ratio:.2f}x" if cell.ratio is not None else ""
    return {
        "machine": machine.name,
        "uarch": machine.uarch.name,
        "benchmark": case.benchmark.name,
        "case": case.name,
        "core_type": cell.core_type.name,
        "counter": counter,
        "ratio": result.ratio,
        "low": result.ratio_low,
        "high": result.ratio_high,
        "text": f"On {machine.name}, {counter_place(cell)}: {told}{beside}.",
    }


def counter_place(cell: Comparison) -> str:
    return f"{cell.case.benchmark.name}/{cell.case.name}"

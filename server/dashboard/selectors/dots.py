"""Measured values for charts and for the tables under them: one chart for each (session, case, metric, core type)."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

from django.db.models import Q

from server.dashboard import figures
from server.results.models import Measurement

# A page draws this many cases at most; the others are one click away, on the page of each session.
MOST_CASES = 12


@dataclass(frozen=True, slots=True)
class Dot:
    """One boot in one chart."""

    position: int
    arm: str
    median: float | None
    median_text: str
    warmup: tuple[str, ...]
    values: tuple[float, ...]
    values_text: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Chart:
    id: str
    session_id: int
    machine: str
    uarch: str
    virtual: bool
    benchmark: str
    case: str
    metric: str
    core_type: str
    unit: str
    better: str
    boots: int
    dots: tuple[Dot, ...]

    def data(self) -> dict[str, Any]:
        """What the script draws, as plain JSON."""
        dots = [
            {"position": dot.position, "arm": dot.arm, "median": dot.median, "values": dot.values} for dot in self.dots
        ]
        return {"id": self.id, "unit": self.unit, "boots": self.boots, "dots": dots}


@dataclass(frozen=True, slots=True)
class CaseCharts:
    """All charts of one case and metric, one for each machine."""

    benchmark: str
    case: str
    metric: str
    unit: str
    better: str
    charts: tuple[Chart, ...]


def charts(boots: Mapping[int, int], cases: Sequence[tuple[str, str]] = ()) -> tuple[Chart, ...]:
    """Charts of sessions, by case and machine; only these (benchmark, case) if any are named. One query.

    `boots` says for each session how many boots it plans, so that those still to come have their place.
    """
    query = Measurement.objects.filter(boot__session_id__in=list(boots))
    if cases:
        named = (Q(case__benchmark__name=benchmark, case__name=case) for benchmark, case in cases)
        query = query.filter(reduce(or_, named))
    rows = query.select_related("boot__session__machine__uarch", "case__benchmark", "metric", "core_type").order_by(
        "case__benchmark__name",
        "case__name",
        "metric__name",
        "boot__session__machine__uarch__name",
        "boot__session__machine__name",
        "core_type__name",
        "boot__position",
    )
    grouped: dict[tuple[int, int, int, int], list[Measurement]] = {}
    for row in rows:
        key = (row.boot.session_id, row.case_id, row.metric_id, row.core_type_id)
        grouped.setdefault(key, []).append(row)
    return tuple(
        _chart(f"dots-{number}", members, boots[key[0]]) for number, (key, members) in enumerate(grouped.items())
    )


def by_case(made: Sequence[Chart], order: Sequence[tuple[str, str]] = ()) -> tuple[CaseCharts, ...]:
    """The charts of each (benchmark, case) and metric together; those named in `order` first, as they stand there."""
    place = {name: number for number, name in enumerate(order)}
    cases: dict[tuple[str, str, str], list[Chart]] = {}
    for chart in sorted(made, key=lambda chart: place.get((chart.benchmark, chart.case), len(place))):
        cases.setdefault((chart.benchmark, chart.case, chart.metric), []).append(chart)
    return tuple(CaseCharts(*key, found[0].unit, found[0].better, tuple(found)) for key, found in cases.items())


def _chart(name: str, rows: Sequence[Measurement], boots: int) -> Chart:
    first = rows[0]
    machine = first.boot.session.machine
    decimals = figures.decimals_for(value for row in rows for value in row.values)
    return Chart(
        id=name,
        session_id=first.boot.session_id,
        machine=machine.name,
        uarch=machine.uarch.name,
        virtual=machine.virtual,
        benchmark=first.case.benchmark.name,
        case=first.case.name,
        metric=first.metric.name,
        core_type=first.core_type.name,
        unit=first.metric.unit,
        better=first.metric.get_better_display(),
        boots=boots,
        dots=tuple(_dot(row, decimals) for row in rows),
    )


def _dot(row: Measurement, decimals: int) -> Dot:
    kept = tuple(row.values[row.warmup :])
    median = statistics.median(kept) if kept else None
    return Dot(
        position=row.boot.position,
        arm=row.boot.arm,
        median=median,
        median_text=figures.fixed(median, decimals),
        warmup=tuple(figures.fixed(value, decimals) for value in row.values[: row.warmup]),
        values=kept,
        values_text=tuple(figures.fixed(value, decimals) for value in kept),
    )

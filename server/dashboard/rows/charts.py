"""Measured values as drawings: the boots of a case as dots with a table under them."""

import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any, NamedTuple, Self

from django.db.models import Count, Q, QuerySet, Sum

from server.dashboard.rows import figures
from server.lab.models import BootState, CoreType, Session
from server.results.models import Case, Measurement, Metric

# A page draws this many cases at most; the others are one click away, on the page of each session.
MOST_CASES = 12
# And this many boots, each a line of a table, with this many values: they take some tenths of a second of a processor,
# and whoever owns a machine decides how many there are.
_MOST_DOTS, _MOST_VALUES = 480, 8_000


@dataclass(frozen=True, slots=True)
class BootDot:
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
    dots: tuple[BootDot, ...]
    # Its samples have left: each dot is the median of a boot.
    summarised: bool

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


@dataclass(frozen=True, slots=True)
class Drawing:
    """The charts that one page draws, of `total` that there are; `first` counts from 0."""

    charts: tuple[Chart, ...]
    first: int
    total: int

    @property
    def number(self) -> int:
        """Of the first one, as people count."""
        return self.first + 1

    @property
    def next(self) -> int | None:
        """Where the next page begins."""
        after = self.first + len(self.charts)
        return after if after < self.total else None

    @property
    def unshown(self) -> int:
        return self.total - len(self.charts)


class _Row(NamedTuple):
    """Of a measurement just what is drawn: a page has tens of thousands of them."""

    session: int
    case: int
    metric: int
    core_type: int
    warmup: int
    values: list[float]
    position: int
    arm: str
    summarised: bool


_COLUMNS = (
    *("boot__session", "case", "metric", "core_type", "warmup", "values", "boot__position", "boot__arm"),
    "summarised",
)


class _Key(NamedTuple):
    session: int
    case: int
    metric: int
    core_type: int


@dataclass(frozen=True, slots=True)
class _Names:
    """The rows that the numbers of charts stand for, each read once."""

    sessions: Mapping[int, Session]
    cases: Mapping[int, Case]
    metrics: Mapping[int, Metric]
    core_types: Mapping[int, CoreType]

    @classmethod
    def of(cls, keys: Collection[_Key]) -> Self:
        sessions, cases, metrics, core_types = (set(ids) for ids in zip(*keys, strict=True)) if keys else ((),) * 4
        return cls(
            Session.objects.select_related("machine__uarch").in_bulk(sessions),
            Case.objects.select_related("benchmark").in_bulk(cases),
            Metric.objects.in_bulk(metrics),
            CoreType.objects.in_bulk(core_types),
        )

    def order(self, key: _Key) -> tuple[str, ...]:
        case, machine = self.cases[key.case], self.sessions[key.session].machine
        core_type = self.core_types[key.core_type].name
        return (
            case.benchmark.name,
            case.name,
            self.metrics[key.metric].name,
            machine.uarch.name,
            machine.name,
            core_type,
        )


def charts(boots: Mapping[int, int], cases: Sequence[tuple[str, str]] = (), *, first: int = 0) -> Drawing:
    """Charts of sessions, by case and machine; only these (benchmark, case) if any are named. Six queries.

    `boots` says for each session how many boots it plans, so that those still to come have their place. As many charts
    as one page can bear are made, from number `first` on; the values of no others are read.
    """
    query = Measurement.objects.filter(boot__session_id__in=list(boots), boot__state=BootState.MEASURED)
    if cases:
        named = (Q(case__benchmark__name=benchmark, case__name=case) for benchmark, case in cases)
        query = query.filter(reduce(or_, named))
    sizes = _sizes(query)
    names = _Names.of(sizes)
    ordered = sorted(sizes, key=names.order)
    first = first if 0 <= first < len(ordered) else 0
    chosen = _bearable(ordered[first:], sizes)
    rows = _rows(query, chosen)
    made = (_chart(f"dots-{n}", names, key, rows[key], boots[key.session]) for n, key in enumerate(chosen))
    return Drawing(tuple(made), first, len(ordered))


def _sizes(query: QuerySet[Measurement]) -> dict[_Key, tuple[int, int]]:
    """How many boots and values each chart has."""
    grouped = query.order_by().values_list("boot__session", "case", "metric", "core_type")
    counted = grouped.annotate(dots=Count("pk"), numbers=Sum("number"))
    return {_Key(*ids): (dots, numbers) for *ids, dots, numbers in counted}


def _bearable(keys: Iterable[_Key], sizes: Mapping[_Key, tuple[int, int]]) -> list[_Key]:
    """The first ones that one page may draw together; one at least."""
    chosen: list[_Key] = []
    dots = values = 0
    for key in keys:
        dots, values = dots + sizes[key][0], values + sizes[key][1]
        if chosen and (dots > _MOST_DOTS or values > _MOST_VALUES):
            break
        chosen.append(key)
    return chosen


def _rows(query: QuerySet[Measurement], keys: Sequence[_Key]) -> dict[_Key, list[_Row]]:
    found: dict[_Key, list[_Row]] = {key: [] for key in keys}
    sessions, cases, metrics, core_types = (set(ids) for ids in zip(*keys, strict=True)) if keys else ((),) * 4
    near = query.filter(boot__session__in=sessions, case__in=cases, metric__in=metrics, core_type__in=core_types)
    for row in (_Row(*columns) for columns in near.order_by("boot__position").values_list(*_COLUMNS).iterator()):
        # Those of a case that is drawn in part are read with it.
        if (members := found.get(_Key(row.session, row.case, row.metric, row.core_type))) is not None:
            members.append(row)
    return found


def by_case(made: Sequence[Chart], order: Sequence[tuple[str, str]] = ()) -> tuple[CaseCharts, ...]:
    """The charts of each (benchmark, case) and metric together; those named in `order` first, as they stand there."""
    place = {name: number for number, name in enumerate(order)}
    cases: dict[tuple[str, str, str], list[Chart]] = {}
    for chart in sorted(made, key=lambda chart: place.get((chart.benchmark, chart.case), len(place))):
        cases.setdefault((chart.benchmark, chart.case, chart.metric), []).append(chart)
    return tuple(CaseCharts(*key, found[0].unit, found[0].better, tuple(found)) for key, found in cases.items())


def _chart(name: str, names: _Names, key: _Key, rows: Sequence[_Row], boots: int) -> Chart:
    case, metric, machine = names.cases[key.case], names.metrics[key.metric], names.sessions[key.session].machine
    decimals = figures.decimals_for(value for row in rows for value in row.values)
    return Chart(
        id=name,
        session_id=key.session,
        machine=machine.name,
        uarch=machine.uarch.name,
        virtual=machine.virtual,
        benchmark=case.benchmark.name,
        case=case.name,
        metric=metric.name,
        core_type=names.core_types[key.core_type].name,
        unit=metric.unit,
        better=metric.get_better_display(),
        boots=boots,
        dots=tuple(_dot(row, decimals) for row in rows),
        summarised=any(row.summarised for row in rows),
    )


def _dot(row: _Row, decimals: int) -> BootDot:
    kept = tuple(row.values[row.warmup :])
    median = statistics.median(kept) if kept else None
    return BootDot(
        position=row.position,
        arm=row.arm,
        median=median,
        median_text=figures.fixed(median, decimals),
        warmup=tuple(figures.fixed(value, decimals) for value in row.values[: row.warmup]),
        values=kept,
        values_text=tuple(figures.fixed(value, decimals) for value in kept),
    )

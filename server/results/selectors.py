"""Reading benchmarks and measurements."""

from collections.abc import Collection, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

from django.db.models import QuerySet, Sum

from server.lab.assignments import CaseOrder
from server.lab.models import BootState, Machine, Session
from server.results.models import Case, Measurement

# Of a session's values so many are in memory at once.
_VALUES_AT_ONCE = 50_000
_NAMES = ("case__benchmark__name", "case__name", "metric__name", "metric__unit", "metric__better", "core_type__name")
_IDS = ("case", "metric", "core_type")


def case_orders(machine: Machine | None = None, benchmarks: Collection[str] = ()) -> list[CaseOrder]:
    """Every enabled case that `machine` measures, with the names of its benchmark's metrics.

    The machine's list may hold patterns: `mm-basic/*`. `benchmarks` (names, or BENCHMARK/CASE with the beginning of a
    case's name) choose among them; where they leave nothing, all are measured: a session never measures nothing.
    """
    cases = Case.objects.filter(enabled=True).select_related("benchmark").prefetch_related("benchmark__metrics")
    possible = [case for case in cases if machine is None or not machine.cases or _is_any(case, machine.cases)]
    chosen = [case for case in possible if any(_is_asked(case, wanted) for wanted in benchmarks)]
    return [
        CaseOrder(
            benchmark=case.benchmark.name,
            version=case.benchmark.version,
            case=case.name,
            runs=case.runs,
            warmup=case.warmup,
            timeout_seconds=case.timeout_seconds,
            metrics=tuple(metric.name for metric in case.benchmark.metrics.all()),
        )
        for case in chosen or possible
    ]


def _is_any(case: Case, patterns: Collection[str]) -> bool:
    return any(fnmatchcase(str(case), pattern) for pattern in patterns)


def _is_asked(case: Case, wanted: str) -> bool:
    benchmark, _slash, beginning = wanted.partition("/")
    return case.benchmark.name == benchmark and case.name.startswith(beginning)


def unknown_benchmarks(wanted: Collection[str]) -> list[str]:
    """Those of `wanted` (as in `case_orders`) that no enabled case answers to, in their order."""
    cases = Case.objects.filter(enabled=True).select_related("benchmark")
    return [name for name in wanted if not any(_is_asked(case, name) for case in cases)]


def columns(session: Session) -> Iterator[dict[str, Any]]:
    """Every value of a session, one column for each (case, metric, core type), as `sessions/ID/samples/` tells them.

    Straight from the rows: thousands of numbers through a serializer would take most of the time. Read some columns at
    a time, each by a query of its own, so that no connection has to live as long as a slow reader takes.
    """
    measured = Measurement.objects.filter(boot__session=session)
    sizes = measured.order_by(*_NAMES).values_list(*_IDS, *_NAMES).annotate(numbers=Sum("values__len"))
    heads: dict[tuple[int, ...], dict[str, Any]] = {}
    size = 0
    for case, metric, core_type, *names, numbers in list(sizes):
        if heads and size + numbers > _VALUES_AT_ONCE:
            yield from _filled(measured, heads)
            heads, size = {}, 0
        head = dict(zip(("benchmark", "case", "metric", "unit", "better", "core_type"), names, strict=True))
        heads[case, metric, core_type] = {**head, "boots": [], "arms": [], "judged": [], "warmup": [], "values": []}
        size += numbers
    yield from _filled(measured, heads)


def _filled(
    measured: "QuerySet[Measurement]", heads: dict[tuple[int, ...], dict[str, Any]]
) -> Sequence[dict[str, Any]]:
    cases, metrics, core_types = (set(ids) for ids in zip(*heads, strict=True)) if heads else ((),) * 3
    near = measured.filter(case__in=cases, metric__in=metrics, core_type__in=core_types).order_by("boot__position")
    rows = near.values_list(*_IDS, "boot__position", "boot__arm", "boot__state", "warmup", "values").iterator(
        chunk_size=500
    )
    for case, metric, core_type, position, arm, state, warmup, values in rows:
        # Some columns beside these may be of the same cases.
        if (column := heads.get((case, metric, core_type))) is not None:
            column["boots"].append(position)
            column["arms"].append(arm)
            column["judged"].append(state == BootState.MEASURED)
            column["warmup"].append(warmup)
            column["values"].append(values)
    return list(heads.values())

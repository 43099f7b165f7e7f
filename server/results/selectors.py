"""Reading benchmarks and measurements."""

from collections.abc import Collection
from fnmatch import fnmatchcase

from server.lab.assignments import CaseOrder
from server.lab.models import Machine
from server.results.models import Case


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

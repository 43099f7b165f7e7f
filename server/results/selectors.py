"""Reading benchmarks and measurements."""

from fnmatch import fnmatchcase

from server.lab.assignments import CaseOrder
from server.lab.models import Machine
from server.results.models import Case


def case_orders(machine: Machine | None = None) -> list[CaseOrder]:
    """Every enabled case that `machine` measures, with the names of its benchmark's metrics.

    The machine's list may hold patterns: `mm-basic/*`.
    """
    cases = Case.objects.filter(enabled=True).select_related("benchmark").prefetch_related("benchmark__metrics")
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
        for case in cases
        if machine is None or not machine.cases or any(fnmatchcase(str(case), wanted) for wanted in machine.cases)
    ]

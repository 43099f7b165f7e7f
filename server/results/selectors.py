"""Reading benchmarks and measurements."""

from server.lab.assignments import CaseOrder
from server.results.models import Case


def case_orders() -> list[CaseOrder]:
    """Every enabled case with the names of its benchmark's metrics."""
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
    ]

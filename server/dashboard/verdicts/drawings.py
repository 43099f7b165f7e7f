"""Charts of the boots of several sessions as one part of a page shows them."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.db.models import Q, QuerySet

from server.dashboard.rows import charts
from server.dashboard.rows.host_status import session_rows
from server.dashboard.rows.verdicts import verdict_matrix
from server.detection.findings.table import comparison_table
from server.lab.models import Session


def drawn_boots(of: QuerySet[Session], checks: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """What the template of boots shows. Charts of the cases that moved come first, so that a long page keeps them."""
    table = comparison_table(of, checks)
    sessions = session_rows(Q(pk__in=[machine.session_id for machine in table.machines]))
    cases = list(dict.fromkeys((row.case.benchmark, row.case.case) for row in verdict_matrix(table).rows))
    drawing = charts.charts({row.id: row.boots for row in sessions}, cases[: charts.MOST_CASES])
    shown = charts.by_case(drawing.charts, cases)
    marks = [row.virtual for row in sessions]
    return {
        "cases": shown,
        # One machine leaves room for several cases in a row.
        "single": all(len(case.charts) == 1 for case in shown),
        "undrawn": len(cases[charts.MOST_CASES :]),
        "drawing": drawing,
        "chart_data": [chart.data() for chart in drawing.charts],
        "marks": "all" if marks and all(marks) else "some" if any(marks) else "",
    }

"""What parts of pages draw: boots of several sessions, a walk over patches, a bisection."""

import math
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from django.db.models import Q

from server.dashboard.pictures import axis
from server.dashboard.pictures.small import Flight, Narrowing, NarrowingStep, Staircase, Tread
from server.dashboard.rows import charts
from server.dashboard.rows.host_status import session_rows
from server.dashboard.rows.verdicts import verdict_matrix
from server.detection.bisection.step import BisectionProgress
from server.detection.bisection.walk import Walk, WalkCell, WalkRow
from server.detection.findings.table import ComparisonTable
from server.detection.models.finding import BisectionStep


def drawn_boots(table: ComparisonTable) -> dict[str, Any]:
    """What the template of boots shows. Charts of the cases that moved come first, so that a long page keeps them."""
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


def drawn_walk(walk: Walk) -> Staircase:
    """Of each machine the cell that its patches move most."""
    cells = [cell for row in walk.rows for cell in row.cells]
    effects = Counter(cell.min_effect for cell in cells)
    by_machine = groupby(sorted(cells, key=lambda cell: (cell.uarch, cell.machine)), key=lambda cell: cell.machine)
    return Staircase(
        patches=tuple(row.subject for row in walk.rows),
        flights=tuple(_flight(walk.rows, max(of_one, key=_moved)) for _machine, of_one in by_machine),
        min_effect=effects.most_common(1)[0][0] if effects else 0.0,
    )


def _moved(cell: WalkCell) -> float:
    return abs(math.log(cell.cumulative)) if cell.cumulative and cell.cumulative > 0 else -1.0


def _flight(rows: Sequence[WalkRow], chosen: WalkCell) -> Flight:
    treads = []
    for row in rows:
        same = (one for one in row.cells if (one.machine, one.name) == (chosen.machine, chosen.name))
        cell = next(same, None)
        if cell is None or cell.cumulative is None:
            treads.append(Tread(None, "", f"patch {row.index} has no figure here"))
        else:
            told = axis.told(cell.cumulative, cell.better)
            treads.append(Tread(cell.cumulative, cell.verdict, f"up to patch {row.index}: {told}"))
    return Flight(f"{chosen.uarch}, {chosen.name}", chosen.better, tuple(treads))


def drawn_search(bisection: BisectionProgress) -> Narrowing:
    """Of its last search the revisions between the ends that have an answer."""
    good, bad, steps = {0}, {bisection.total}, []
    for step in bisection.steps:
        if step.earlier or step.kind != BisectionStep.Kind.MIDDLE or step.index is None or not step.answer:
            continue
        if step.answer == BisectionStep.Answer.GOOD:
            good.add(step.index)
        elif step.answer == BisectionStep.Answer.BAD:
            bad.add(step.index)
        # Answers may contradict each other; the first bad one counts, as in the search itself.
        high = min(bad)
        low = max((index for index in good if index < high), default=0)
        said = f"{high - low} of {bisection.total} commits left"
        steps.append(NarrowingStep(step.index, step.sha, step.subject, step.answer, low, high, said))
    return Narrowing(bisection.total, tuple(steps))

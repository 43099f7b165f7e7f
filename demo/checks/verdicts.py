"""Comparisons and the finding."""

from collections.abc import Iterator, Sequence

from demo.checks.facts import Check, check
from demo.lab import MachinePlan
from demo.outcomes import Outcome
from server.detection.models import Comparison, Finding, Verdict
from server.detection.scope import is_same_code
from server.detection.vector import SAME_CODE
from server.lab.models import Machine
from server.results.models import Measurement
from server.sources.models import Series

_CHANGES = frozenset({Verdict.REGRESSED.value, Verdict.IMPROVED.value})
Cell = tuple[int, int, int, str]


def verdict_checks(series: Series, outcome: Outcome, machines: Sequence[MachinePlan]) -> list[Check]:
    finding = Finding.objects.filter(series=series).first()
    kind = finding.kind if finding else "none"
    # Of kernels that run the same code nothing is booted, and nothing compared.
    booted = not all(is_same_code(session) for session in series.sessions.all())
    return [
        check("every cell compared", _comparison_faults(series, booted=booted), f"{_comparisons(series)} comparisons"),
        check("finding", _finding_faults(finding, outcome), f"{kind}, marked as virtual"),
        *(_component(finding, uarch, verdict) for uarch, verdict in sorted(outcome.verdicts.items())),
        check(
            "wall clock agrees",
            _wall_faults(series, machines if booted else ()),
            "it says the same, or that it cannot tell",
        ),
    ]


def _comparisons(series: Series) -> int:
    return Comparison.objects.filter(session__series=series).count()


def _comparison_faults(series: Series, *, booted: bool) -> Iterator[str]:
    measured = set(
        Measurement.objects.filter(boot__session__series=series)
        .values_list("boot__session__machine__name", "case__name", "metric__name")
        .distinct()
    )
    compared = set(
        Comparison.objects.filter(session__series=series).values_list(
            "session__machine__name", "case__name", "metric__name"
        )
    )
    if booted and not compared:
        yield "nothing was compared"
    for machine, case, metric in sorted(measured - compared):
        yield f"{case} {metric} on {machine} was measured and not compared"


def _finding_faults(finding: Finding | None, outcome: Outcome) -> Iterator[str]:
    if finding is None:
        yield "there is none"
        return
    if finding.kind != outcome.kind:
        yield f"{finding.kind} instead of {outcome.kind}: {finding.headline}"
    if not finding.virtual:
        yield "it does not say that it comes from virtual machines"
    if finding.identical != outcome.same_image:
        yield f"it says that the kernels are {'the same image' if finding.identical else 'different'}"


def _component(finding: Finding | None, uarch: str, verdict: str) -> Check:
    row = finding.verdicts.filter(uarch__name=uarch).select_related("comparison").first() if finding else None
    if row is None:
        return Check(f"verdict for {uarch}", ok=False, detail=f"none; {verdict} is right")
    faults = []
    if row.verdict != verdict:
        faults.append(f"{row.verdict} instead of {verdict} {row.reason}".rstrip())
    elif verdict in _CHANGES and (row.comparison is None or row.comparison.ratio is None):
        faults.append(f"{verdict}, but no comparison shows by how much")
    elif verdict == Verdict.UNCHANGED and row.mde is None and row.reason != SAME_CODE:
        faults.append("unchanged, but not what would have been seen")
    seen = f" (would have seen {100 * row.mde:.1f} %)" if row.mde is not None else ""
    moved = f" ({row.comparison.ratio:.2f}x)" if row.comparison and row.comparison.ratio else ""
    return check(f"verdict for {uarch}", faults, verdict + (moved if verdict in _CHANGES else seen))


def _wall_faults(series: Series, machines: Sequence[MachinePlan]) -> Iterator[str]:
    """By the wall clock a machine may be unable to tell, but must not contradict the one that counts."""
    walls = {machine.name for machine in machines if machine.clock == Machine.Clock.WALL}
    rows = Comparison.objects.filter(session__series=series).select_related("session__machine__uarch", "case")
    counted: dict[Cell, str] = {}
    for row in rows:
        if row.session.machine.name not in walls:
            counted[_cell(row)] = row.verdict
    told = [row for row in rows if row.session.machine.name in walls]
    if walls and not told:
        yield "nothing was compared there"
    for row in told:
        other = counted.get(_cell(row))
        if row.verdict not in {Verdict.INCONCLUSIVE, other}:
            yield f"{row.case.name} is {row.verdict} on {row.session.machine.name} and {other} where it is counted"


def _cell(row: Comparison) -> Cell:
    return row.case_id, row.metric_id, row.session.machine.uarch_id, row.core_type.name

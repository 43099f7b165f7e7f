"""Machines of one microarchitecture that say opposite things about the same cells."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from server.detection.models import Comparison, Finding, Verdict
from server.detection.selectors import sessions_of
from server.detection.vector import shorten
from server.lab.models import Machine


@dataclass(frozen=True)
class Disagreement:
    """`machine` is the one to look at first: the one whose verdicts fewest others share."""

    machine: Machine
    detail: str


def disagreements_of(finding: Finding) -> list[Disagreement]:
    """At most one for each microarchitecture, in the order of their names. One query."""
    rows = (
        Comparison.objects.filter(session__in=sessions_of(finding), session__machine__virtual=finding.virtual)
        .exclude(verdict=Verdict.INCONCLUSIVE)
        .select_related("session__machine__uarch", "case", "metric", "core_type")
        .order_by("session__machine__uarch__name", "case__name", "metric__name", "session__machine__name")
    )
    by_uarch: dict[str, dict[tuple[int, int, str], list[Comparison]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        by_uarch[row.session.machine.uarch.name][row.case_id, row.metric_id, row.core_type.name].append(row)
    found = []
    for uarch, cells in by_uarch.items():
        contradicting = [cell for cell in cells.values() if len({row.verdict for row in cell}) > 1]
        if contradicting:
            found.append(_disagreement(uarch, contradicting))
    return found


def _disagreement(uarch: str, cells: Sequence[Sequence[Comparison]]) -> Disagreement:
    alone = Counter(row.session.machine for cell in cells for row in _loneliest(cell))
    machine = min(alone, key=lambda one: (-alone[one], one.name))
    said = [
        f"{cell[0].metric.name} of {cell[0].case.name} ({cell[0].core_type.name}) is "
        + ", ".join(f"{row.verdict} on {row.session.machine.name}" for row in cell)
        for cell in cells
    ]
    return Disagreement(machine, f"machines of {uarch} disagree: {shorten(said)}")


def _loneliest(cell: Sequence[Comparison]) -> Iterator[Comparison]:
    """The rows with the verdict that fewest machines gave; of two machines both are."""
    counts = Counter(row.verdict for row in cell)
    fewest = min(counts.values())
    return (row for row in cell if counts[row.verdict] == fewest)

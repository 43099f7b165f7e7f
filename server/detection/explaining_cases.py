"""Which cells of a finding deserve an explanation of their own: one for each pattern of machines."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from server.detection.models import Comparison, Verdict
from server.detection.models.comparisons import CHANGES


@dataclass(frozen=True)
class Pattern:
    """The verdicts of one (case, metric) by machine, and in how many cells the machines said the same.

    A machine with several core types stands here once for each of them, as "NAME (big cores)".
    """

    speaker: Comparison
    verdicts: tuple[tuple[str, str], ...]
    sessions: tuple[tuple[str, int], ...]
    core_types: tuple[tuple[str, str], ...]
    cells: int


def patterns(comparisons: Sequence[Comparison]) -> list[Pattern]:
    """Those with a change, most changed machines first; then most machines that could tell at all."""
    several = _machines_with_core_types(comparisons)
    groups: dict[tuple[int, int], list[Comparison]] = defaultdict(list)
    for row in comparisons:
        groups[row.case_id, row.metric_id].append(row)
    same: dict[tuple[tuple[str, str], ...], list[list[Comparison]]] = defaultdict(list)
    for group in groups.values():
        if any(row.verdict in CHANGES for row in group):
            same[tuple(sorted((_name(row, several), row.verdict) for row in group))].append(group)
    found = [_pattern(verdicts, alike, several) for verdicts, alike in same.items()]
    return sorted(found, key=_rank)


def _pattern(
    verdicts: tuple[tuple[str, str], ...], alike: Sequence[Sequence[Comparison]], several: set[int]
) -> Pattern:
    rows = min(alike, key=lambda group: _title(group[0]))
    first = min((row for row in rows if row.verdict in CHANGES), key=lambda row: _name(row, several))
    return Pattern(
        speaker=first,
        verdicts=verdicts,
        sessions=tuple((_name(row, several), row.session_id) for row in rows),
        core_types=tuple((_name(row, several), row.core_type.name) for row in rows if row.session_id in several),
        cells=len(alike),
    )


def _rank(pattern: Pattern) -> tuple[int, int, int, tuple[str, str, str]]:
    changed = sum(verdict in CHANGES for _name, verdict in pattern.verdicts)
    telling = sum(verdict != Verdict.INCONCLUSIVE for _name, verdict in pattern.verdicts)
    return -changed, -telling, -pattern.cells, _title(pattern.speaker)


def _title(row: Comparison) -> tuple[str, str, str]:
    return row.case.benchmark.name, row.case.name, row.metric.name


def _machines_with_core_types(comparisons: Sequence[Comparison]) -> set[int]:
    """Sessions of machines that were measured on more than one kind of core."""
    kinds: dict[int, set[int]] = defaultdict(set)
    for row in comparisons:
        kinds[row.session_id].add(row.core_type_id)
    return {session_id for session_id, found in kinds.items() if len(found) > 1}


def _name(row: Comparison, several: set[int]) -> str:
    machine = row.session.machine.name
    return f"{machine} ({row.core_type.name} cores)" if row.session_id in several else machine

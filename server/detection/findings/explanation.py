"""Why a finding shows on some machines and not on others, and which counters moved with it."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from server import stats
from server.detection.findings.result import remade
from server.detection.findings.vector import as_speed, heard
from server.detection.models import Comparison, Finding, Verdict
from server.detection.models.finding import CHANGES
from server.lab.hosts.probes import first_facts
from server.lab.models import Boot, Session
from server.results.models import ArchivedSession, KeptKind, Measurement, Metric
from server.stats.explanation.search import Explanation, explain

_GUEST = ("virtual", "hypervisor", "virtualization")
# Of what was patched into the kernel, the parts that machines of several models can have in common.
_ALTERNATIVES = ("cleared", "detected")


def facts_in(sessions: Iterable[Session], *, virtual: bool) -> dict[int, dict[str, Any]]:
    """By session, the facts of its first measured boot of the base kernel. Two queries.

    A machine's facts of today may be those of other firmware; the patched kernel may change what it shows. Findings of
    virtual machines compare these among themselves, so there the marks of a guest say nothing and are left out.
    """
    by_id = {session.pk: session for session in sessions}
    boots = Boot.objects.filter(session__in=by_id, arm=Boot.Arm.BASE, state=Boot.State.MEASURED)
    return {pk: _prepared(told, by_id[pk], virtual=virtual) for pk, told in first_facts(boots).items()}


def _prepared(told: Any, session: Session, *, virtual: bool) -> dict[str, Any]:
    if not isinstance(told, Mapping) or not told:
        return {}
    facts = {str(name): value for name, value in told.items()}
    facts["uarch"] = session.machine.uarch.name
    chosen = facts.get("alternatives")
    if isinstance(chosen, Mapping):
        facts |= {f"alternatives {name}": chosen[name] for name in _ALTERNATIVES if isinstance(chosen.get(name), list)}
    return _as_if_physical(facts) if virtual else facts


def _as_if_physical(facts: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in facts.items() if name not in _GUEST}
    flags = kept.get("flags")
    words = flags.split() if isinstance(flags, str) else flags
    if isinstance(words, list | tuple):
        kept["flags"] = [flag for flag in words if flag != "hypervisor"]
    return kept


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


# A counter explains a change only if it surely moved by more than counters do between two kernels for no reason.
_LEAST = 0.05
# A page shows so many of one cell, and of one finding.
_MOST_OF_CELL = 5
_MOST = 40
_LONGEST_NAME = 100
# A counter beyond this is somebody's mistake.
_LARGEST = 1e300
# Benchmark, case and core type.
_NAMES = 3

_Where = tuple[int, str, str, str]


@dataclass
class _Counted:
    """The boots' values of one counter in one cell, by arm."""

    base: list[list[float]] = field(default_factory=list)
    patched: list[list[float]] = field(default_factory=list)

    def add(self, arm: str, values: list[float]) -> None:
        (self.base if arm == Boot.Arm.BASE else self.patched).append(values)


def counters_beside(changed: Sequence[Comparison]) -> list[dict[str, Any]]:
    """Rows for `Finding.counters`: those whose 95 % interval lies beyond 5 % of 1, per machine and changed case.

    Boots are the unit, as everywhere: a counter is compared over the boots' values, judged by nobody and part of no
    family. What moved most comes first. Two queries for any number of cells.
    """
    cells: dict[_Where, Comparison] = {}
    for row in changed:
        cells.setdefault((row.session_id, row.case.benchmark.name, row.case.name, row.core_type.name), row)
    found = _from_conditions(cells) | _from_measurements(cells)
    names = sorted(name for name, counted in found.items() if counted.base and counted.patched)
    results = stats.compare([_cell(found[name]) for name in names])
    moved: dict[_Where, list[tuple[str, stats.CellComparison]]] = defaultdict(list)
    for (where, counter), result in zip(names, results, strict=True):
        if _has_moved(result):
            moved[where].append((counter, result))
    rows = []
    for where in sorted(moved):
        strongest = sorted(moved[where], key=lambda one: -_movement(one[1].ratio))[:_MOST_OF_CELL]
        rows += [_counter_row(cells[where], counter, result) for counter, result in strongest]
    return sorted(rows, key=lambda row: -_movement(row["ratio"]))[:_MOST]


def _from_conditions(cells: Mapping[_Where, Comparison]) -> dict[tuple[_Where, str], _Counted]:
    """What `perf stat` counted in runs of its own, as the agent told it with each boot."""
    found: dict[tuple[_Where, str], _Counted] = defaultdict(_Counted)
    boots = _measured_boots(cells).values_list("session_id", "arm", "conditions__document__counters")
    for session_id, arm, told in boots.order_by("session_id", "position"):
        for where, event, value in _entries(session_id, told):
            if where in cells:
                found[where, event].add(arm, [value])
    return dict(found)


def _entries(session_id: int, told: Any) -> Iterator[tuple[_Where, str, float]]:
    """Agents wrote this: what has another shape is passed over."""
    for entry in told if isinstance(told, list) else ():
        if not isinstance(entry, Mapping):
            continue
        value, event = _number(entry.get("value")), entry.get("event")
        names = [name for key in ("benchmark", "case", "core_type") if isinstance(name := entry.get(key), str)]
        if value is not None and isinstance(event, str) and event and len(names) == _NAMES:
            benchmark, case, core_type = names
            yield (session_id, benchmark, case, core_type), event[:_LONGEST_NAME], value


def _number(told: Any) -> float | None:
    known = isinstance(told, int | float) and not isinstance(told, bool)
    return float(told) if known and abs(told) < _LARGEST else None


def _from_measurements(cells: Mapping[_Where, Comparison]) -> dict[tuple[_Where, str], _Counted]:
    found: dict[tuple[_Where, str], _Counted] = defaultdict(_Counted)
    rows = Measurement.objects.filter(
        boot__in=_measured_boots(cells),
        metric__better=Metric.Better.NONE,
        case__in={row.case_id for row in cells.values()},
        summarised=False,
    )
    names = ("boot__session_id", "case__benchmark__name", "case__name", "core_type__name", "metric__name", "boot__arm")
    for *place, metric, arm, values, warmup in rows.order_by("boot__position").values_list(*names, "values", "warmup"):
        session_id, benchmark, case, core_type = place
        where = (session_id, benchmark, case, core_type)
        if where in cells:
            found[where, metric].add(arm, values[warmup:])
    return dict(found)


def _measured_boots(cells: Mapping[_Where, Comparison]) -> Any:
    return Boot.objects.filter(session__in={where[0] for where in cells}, state=Boot.State.MEASURED)


def _cell(counted: _Counted) -> stats.Cell:
    # A counter has no better direction; the ratio and its interval do not depend on it.
    return stats.Cell(base=counted.base, patched=counted.patched, better="lower", min_effect=_LEAST)


def _has_moved(result: stats.CellComparison) -> bool:
    low, high = result.ratio_low, result.ratio_high
    return low is not None and high is not None and (low > 1 + _LEAST or high < 1 - _LEAST)


def _movement(ratio: float | None) -> float:
    return abs(math.log(ratio)) if ratio else 0.0


def _counter_row(cell: Comparison, counter: str, result: stats.CellComparison) -> dict[str, Any]:
    machine, case = cell.session.machine, cell.case
    assert result.ratio is not None
    told = f"{counter} is {result.ratio:.2f}x ({result.ratio_low:.2f}x to {result.ratio_high:.2f}x)"
    beside = (
        f" where {cell.metric.name} is {as_speed(cell.ratio, cell.metric.better)}" if cell.ratio is not None else ""
    )
    return {
        "machine": machine.name,
        "uarch": machine.uarch.name,
        "benchmark": case.benchmark.name,
        "case": case.name,
        "core_type": cell.core_type.name,
        "counter": counter,
        "ratio": result.ratio,
        "low": result.ratio_low,
        "high": result.ratio_high,
        "text": f"On {machine.name}, {counter_place(cell)}: {told}{beside}.",
    }


def counter_place(cell: Comparison) -> str:
    return f"{cell.case.benchmark.name}/{cell.case.name}"


# More than these nobody reads; the first is of the case that changed on most machines.
_MOST_EXPLANATIONS = 3
# Facts that separate the machines as well as those named, the suspected ones first: models differ in dozens.
_MOST_ALIKE = 10


def explain_finding(finding: Finding) -> None:
    """Fill `explanations` and `counters` from the finding's comparisons and boots, and save these two fields.

    Everything comes from rows that do not change any more, so that doing it again gives the same.
    """
    finding.explanations, finding.counters = explained(finding)
    told = {"explanations": finding.explanations, "counters": finding.counters}
    Finding.objects.filter(pk=finding.pk).update(**told, news=True)


def explained(finding: Finding) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What `Finding.explanations` and `Finding.counters` must hold; nothing is saved."""
    result = remade(finding)
    comparisons = heard(result.comparisons, finding.checks) if result else []
    changed = [row for row in comparisons if row.verdict in CHANGES]
    return _explanations(finding, comparisons), _counters(finding, changed)


def _counters(finding: Finding, changed: Sequence[Comparison]) -> list[dict[str, Any]]:
    """What counters say beside these changes; of sessions whose values have left for the archive, what was told then.

    Medians stay of those values: as samples they would tell of boots that do not differ within themselves.
    """
    kinds = [KeptKind.SAMPLES, KeptKind.CONDITIONS]
    archived = ArchivedSession.objects.filter(session__in={row.session_id for row in changed}, kind__in=kinds)
    gone = set(archived.exclude(left_at=None).values_list("session", flat=True))
    if not gone:
        return counters_beside(changed)
    told = {_place(row) for row in changed if row.session_id in gone}
    names = ("machine", "benchmark", "case", "core_type")
    rows = [row for row in finding.counters if tuple(row[name] for name in names) in told]
    rows += counters_beside([row for row in changed if row.session_id not in gone])
    return sorted(rows, key=lambda row: -_movement(row["ratio"]))[:_MOST]


def _place(row: Comparison) -> tuple[str, ...]:
    return row.session.machine.name, row.case.benchmark.name, row.case.name, row.core_type.name


def _explanations(finding: Finding, comparisons: Sequence[Comparison]) -> list[dict[str, Any]]:
    """At most three rows, one for each differing pattern of machines."""
    found = patterns(comparisons)
    sessions = {row.session_id: row.session for row in comparisons}
    facts = facts_in(sessions.values(), virtual=finding.virtual) if found else {}
    rows: list[dict[str, Any]] = []
    for pattern in found:
        for answer in _answers(pattern, facts):
            row = _row(pattern, answer)
            if not any(_is_within(row, other) for other in rows):
                rows.append(row)
    return rows[:_MOST_EXPLANATIONS]


def _answers(pattern: Pattern, facts: dict[int, dict[str, Any]]) -> Iterable[Explanation]:
    kinds = dict(pattern.core_types)
    told = {}
    for name, session_id in pattern.sessions:
        known = facts.get(session_id, {})
        # Only machines with several kinds of cores tell this: beside others it is unknown, and not used.
        told[name] = {**known, "core type": kinds[name]} if known and name in kinds else known
    return explain(dict(pattern.verdicts), told)


def _row(pattern: Pattern, answer: Explanation) -> dict[str, Any]:
    of = pattern.speaker
    return {
        "question": answer.question.value,
        "outcome": answer.outcome.value,
        "text": answer.text,
        "benchmark": of.case.benchmark.name,
        "case": of.case.name,
        "metric": of.metric.name,
        "core_type": of.core_type.name,
        "cells": pattern.cells,
        "changed": list(answer.evidence.changed),
        "others": list(answer.evidence.others),
        "conditions": [condition.text for condition in answer.conditions],
        "alike": list(dict.fromkeys(text for condition in answer.conditions for text in condition.alike))[:_MOST_ALIKE],
        "chance": answer.chance,
    }


def _is_within(row: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether `row` asks about a part of the machines that `other` has told about already."""
    same = row["question"] == other["question"]
    return same and set(row["changed"]) <= set(other["changed"]) and set(row["others"]) <= set(other["others"])

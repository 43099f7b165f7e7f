"""Why a finding shows on some machines and not on others, and which counters moved with it."""

from collections.abc import Iterable, Sequence
from typing import Any

from server.detection.explaining_cases import Pattern, patterns
from server.detection.explaining_counters import counters_beside
from server.detection.explaining_facts import facts_in
from server.detection.lifecycle.hearing import heard
from server.detection.models import Comparison, Finding
from server.detection.models.comparisons import CHANGES
from server.detection.results import remade
from server.stats.explain import explain
from server.stats.explanation import Explanation

# More than these nobody reads; the first is of the case that changed on most machines.
_MOST_EXPLANATIONS = 3
# Facts that separate the machines as well as those named, the suspected ones first: models differ in dozens.
_MOST_ALIKE = 10


def explain_finding(finding: Finding) -> None:
    """Fill `explanations` and `counters` from the finding's comparisons and boots, and save these two fields.

    Everything comes from rows that do not change any more, so that doing it again gives the same.
    """
    finding.explanations, finding.counters = explained(finding)
    Finding.objects.filter(pk=finding.pk).update(explanations=finding.explanations, counters=finding.counters)


def explained(finding: Finding) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What `Finding.explanations` and `Finding.counters` must hold; nothing is saved."""
    result = remade(finding)
    comparisons = heard(result.comparisons, finding.checks) if result else []
    changed = [row for row in comparisons if row.verdict in CHANGES]
    return _explanations(finding, comparisons), counters_beside(changed)


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

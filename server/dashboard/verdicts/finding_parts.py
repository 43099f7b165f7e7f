"""The parts of a finding's page that are folded: each has an address of its own, and reads only what it shows."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q

from server.core.models import Transition
from server.dashboard.rows.host_status import AuditLine, session_rows
from server.dashboard.rows.mail_commands import commands_about
from server.dashboard.rows.verdicts import verdict_matrix
from server.dashboard.verdicts.drawings import drawn_boots, drawn_search, drawn_walk
from server.dashboard.verdicts.search_steps import step_lines
from server.detection.bisection.step import bisections_of
from server.detection.bisection.walk import walk_of
from server.detection.findings.table import ComparisonTable, sessions_of
from server.detection.findings.versions import compare_versions
from server.detection.models import Finding

Context = dict[str, Any]


@dataclass(frozen=True, slots=True)
class AcceptanceRow:
    person: str
    reason: str
    what: str
    expires_at: datetime | None
    withdrawn_at: datetime | None
    created_at: datetime


def _figures(finding: Finding, table: ComparisonTable) -> Context:
    return {"matrix": verdict_matrix(table), "gaps": finding.gaps}


def _boots(_finding: Finding, table: ComparisonTable) -> Context:
    return drawn_boots(table)


def _sessions(finding: Finding, _table: ComparisonTable) -> Context:
    return {"sessions": session_rows(Q(pk__in=sessions_of(finding)))}


def _counters(finding: Finding, _table: ComparisonTable) -> Context:
    return {"explanations": finding.explanations, "counters": finding.counters}


def _search(finding: Finding, _table: ComparisonTable) -> Context:
    searches = bisections_of(finding)
    lines = step_lines(finding, searches)
    return {"bisections": tuple((row, drawn_search(row), lines.get(row.id, ())) for row in searches)}


def _walk(finding: Finding, _table: ComparisonTable) -> Context:
    walk = walk_of(finding.series) if finding.series is not None else None
    return {"walk": walk, "staircase": drawn_walk(walk) if walk else None}


def _versions(finding: Finding, _table: ComparisonTable) -> Context:
    return {"versions": compare_versions(finding)}


def _life(finding: Finding, _table: ComparisonTable) -> Context:
    rows = Transition.objects.filter(subject="finding", subject_id=finding.pk).order_by("id")
    return {
        "life": tuple(AuditLine(row.at, row.before, row.after, row.reason, row.actor) for row in rows),
        "acceptances": acceptances_of(finding),
        "commands": commands_about(finding),
    }


def acceptances_of(finding: Finding) -> tuple[AcceptanceRow, ...]:
    return tuple(
        AcceptanceRow(
            person=row.person,
            reason=row.reason,
            what=", ".join([row.metric.name if row.metric else "all metrics", *(row.uarchs or ["everywhere"])]),
            expires_at=row.expires_at,
            withdrawn_at=row.withdrawn_at,
            created_at=row.created_at,
        )
        for row in finding.acceptances.select_related("metric")
    )


@dataclass(frozen=True, slots=True)
class FindingPart:
    """`slug` is its address below that of the finding."""

    slug: str
    title: str
    read: Callable[[Finding, ComparisonTable], Context]


FINDING_PARTS: Mapping[str, FindingPart] = {
    part.slug: part
    for part in (
        FindingPart("figures", "Figures", _figures),
        FindingPart("boots", "Boots", _boots),
        FindingPart("why", "Facts and counters", _counters),
        FindingPart("bisection", "Bisection", _search),
        FindingPart("walk", "Patches", _walk),
        FindingPart("versions", "Version before", _versions),
        FindingPart("sessions", "Sessions", _sessions),
        FindingPart("life", "Life", _life),
    )
}

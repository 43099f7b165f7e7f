"""A finding as text: what it says, what was checked, who decided what."""

from collections.abc import Iterator

from server.core.models import Transition
from server.core.visible_text import for_terminal
from server.detection.lifecycle.versions import compare_versions
from server.detection.models import Acceptance, Finding
from server.detection.selectors import finding_vector

_SHOWN_LINES = 30
_SHOWN_COUNTERS = 10


def finding_text(finding: Finding) -> str:
    """Lines for a terminal, with what strangers wrote made visible."""
    return "\n".join(for_terminal(line) for line in _lines(finding))


def _lines(finding: Finding) -> Iterator[str]:
    yield f"finding {finding.pk}: {finding.kind}, {Finding.State(finding.state).label}"
    yield f"  {finding.headline}"
    yield f"  of {finding.series or finding.branch}{' (virtual machines: no evidence)' if finding.virtual else ''}"
    if finding.reason:
        yield f"  since {finding.state_since:%Y-%m-%d %H:%M} UTC: {finding.reason}"
    if finding.culprit:
        yield f"  made by {finding.culprit}"
    if finding.fix:
        yield f"  mended by {finding.fix}"
    yield from _section(
        "verdicts",
        (f"{one.uarch}: {one.verdict}{f' ({one.reason})' if one.reason else ''}" for one in finding_vector(finding)),
    )
    yield from _section("checks", (f"{row.get('name')}: {row.get('outcome')}, {row['text']}" for row in finding.checks))
    yield from _section("explanations", (str(row["text"]) for row in finding.explanations))
    yield from _section("counters", (str(row["text"]) for row in finding.counters[:_SHOWN_COUNTERS]))
    yield from _section("ledger", (_line(line) for line in finding.acceptances.select_related("metric__benchmark")))
    versions = compare_versions(finding)
    yield from _section("versions", [versions.sentence] if versions else [])
    yield from _section("history, the newest first", _history(finding))


def _section(title: str, lines: Iterator[str] | list[str]) -> Iterator[str]:
    found = list(lines)
    if found:
        yield f"{title}:"
        yield from (f"  {line}" for line in found)


def _line(line: Acceptance) -> str:
    what = f"{line.metric or 'all metrics'} on {', '.join(line.uarchs) or 'all microarchitectures'}"
    until = f", until {line.expires_at:%Y-%m-%d %H:%M} UTC" if line.expires_at else ""
    gone = f", withdrawn {line.withdrawn_at:%Y-%m-%d %H:%M} UTC" if line.withdrawn_at else ""
    return f"{line.pk}: {what}, by {line.person}{until}{gone}: {line.reason}"


def _history(finding: Finding) -> Iterator[str]:
    lines = Transition.objects.filter(subject="finding", subject_id=finding.pk).order_by("-id")
    for line in lines[:_SHOWN_LINES]:
        by = f" by {line.actor}" if line.actor else ""
        reason = f": {line.reason}" if line.reason else ""
        yield f"{line.at:%Y-%m-%d %H:%M:%S} {line.before or 'new'} -> {line.after}{by}{reason}"

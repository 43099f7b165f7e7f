"""The text of a report: verdict, table, numbers, what was run. At most 60 lines, plain ASCII."""

import re
from dataclasses import dataclass
from email.utils import parseaddr

from django.conf import settings
from django.template.loader import render_to_string

from server.detection.models import Finding
from server.lab.models import Machine
from server.reports.cells import column_names, coverage_lines, coverage_table, moved_details, moved_table
from server.reports.evidence import Evidence, MachineFacts
from server.reports.plaintext import plain, wrap

MOST_LINES = 60
_MOST_SUBJECT = 200
_NO_CHANGE = "No regression found."
_MARK = re.compile(r"^(re|aw|fwd?)\s*:\s*", re.IGNORECASE)


@dataclass(frozen=True)
class Limits:
    """Most lines of each part."""

    verdict: int
    culprit: int
    explanation: int
    table: int
    coverage: int
    gaps: int
    machines: int


# The first that leaves room for the numbers of a few cells is taken.
_LIMITS = (
    Limits(verdict=8, culprit=10, explanation=6, table=18, coverage=12, gaps=6, machines=12),
    Limits(verdict=6, culprit=6, explanation=5, table=11, coverage=6, gaps=4, machines=6),
    Limits(verdict=5, culprit=3, explanation=4, table=8, coverage=3, gaps=3, machines=4),
)
_FEW_DETAILS = 7


@dataclass(frozen=True)
class Text:
    subject: str
    body: str


def compose(evidence: Evidence) -> Text:
    """The mail about a finding. Whether it may be told at all was checked when the evidence was gathered."""
    return Text(subject=reply_subject(evidence), body=_body(evidence))


def reply_subject(evidence: Evidence) -> str:
    """`Re:` and the subject of the mail that is answered, on one line of ASCII."""
    subject = plain(evidence.root.subject if evidence.root else "") or plain(str(evidence.series))
    while _MARK.match(subject):
        subject = _MARK.sub("", subject)
    return f"Re: {subject}"[:_MOST_SUBJECT].rstrip()


def _body(evidence: Evidence) -> str:
    if evidence.finding.kind == Finding.Kind.UNCHANGED:
        return "\n".join(_fitting(evidence, few=0)[1]) + "\n"
    sections, lines = _fitting(evidence, few=_FEW_DETAILS)
    # The only part whose length is free: two lines for each cell that moved, as long as the mail has room.
    details = moved_details(evidence.moved, column_names(evidence.comparisons), MOST_LINES - len(lines) - 2)
    return "\n".join(_render(sections | {"details": details})) + "\n"


def _fitting(evidence: Evidence, *, few: int) -> tuple[dict[str, object], list[str]]:
    """All parts but the details, and their lines, so that `few` lines are left."""
    for limits in _LIMITS:
        sections = _sections(evidence, limits)
        lines = _render(sections)
        if len(lines) + few <= MOST_LINES:
            break
    return sections, lines


def _sections(evidence: Evidence, limits: Limits) -> dict[str, object]:
    unchanged = evidence.finding.kind == Finding.Kind.UNCHANGED
    rows = evidence.comparisons
    return {
        "virtual": evidence.virtual,
        "clocks": ", ".join(sorted({_clock(facts.machine) for facts in evidence.machines})),
        "verdict": wrap(_verdict(evidence), most=limits.verdict),
        "culprit": _culprit(evidence, limits.culprit),
        "explanation": _whole(evidence.explanation, limits.explanation),
        "unchanged": unchanged,
        "judged": bool(rows),
        "table": _table(evidence, limits.table),
        "coverage": _capped(coverage_lines(rows, column_names(rows)), limits.coverage),
        "gaps": _capped([_item(gap) for gap in evidence.gaps], limits.gaps),
        "run": _run(evidence, limits),
        "page": f"{settings.SITE_URL}/series/{evidence.series.pk}/",
        "tags": _tags(evidence),
        "address": parseaddr(settings.MAIL_FROM)[1],
    }


def _render(sections: dict[str, object]) -> list[str]:
    text = render_to_string("mail/report.txt", sections)
    return [line.rstrip() for line in re.sub(r"\n{3,}", "\n\n", text).strip("\n").split("\n")]


def _verdict(evidence: Evidence) -> str:
    headline = evidence.finding.headline
    return f"{_NO_CHANGE} {headline}" if evidence.finding.kind == Finding.Kind.UNCHANGED else headline


def _table(evidence: Evidence, most: int) -> list[str]:
    """Nothing where nothing was booted, because both kernels run the same code."""
    rows = evidence.comparisons
    if not rows:
        return []
    unchanged = evidence.finding.kind == Finding.Kind.UNCHANGED
    return coverage_table(rows, most) if unchanged else moved_table(rows, evidence.moved, most)


def _culprit(evidence: Evidence, most: int) -> list[str]:
    """Which patch made it, then what each of them adds; as many lines as there is room for."""
    bisected = wrap(evidence.culprit, most=min(most, 4)) if evidence.culprit else []
    walked = [line for sentence in evidence.walk for line in wrap(sentence, first="  ", indent="    ", most=2)]
    if not walked:
        return bisected
    room = most - len(bisected) - 1
    return [*bisected, *(["What each patch adds:", *_capped(walked, room)] if room > 1 else [])]


def _whole(text: str, most: int) -> list[str]:
    """Nothing where the room is short: how much an explanation is worth stands at its end."""
    lines = wrap(text) if text else []
    return lines if len(lines) <= most else []


def _run(evidence: Evidence, limits: Limits) -> list[str]:
    base = evidence.base
    lines = wrap(f"base {base.sha[:12]} ({base.subject}), tree {base.tree.name}", first="  ", indent="    ", most=2)
    kernels = dict.fromkeys(
        f"kernel {build.config.name} ({build.arch}), {build.compiler_version or build.toolchain.compiler}"
        for build in evidence.builds
    )
    lines += _capped([_item(text) for text in kernels], 2)
    machines = [
        _item(f"{_named(facts)}: {facts.cpu or 'CPU model not told'}, {_clock(facts.machine)}")
        for facts in evidence.machines
    ]
    lines += _capped(machines, limits.machines)
    if not evidence.machines:
        return lines
    cmdlines = {facts.cmdline for facts in evidence.machines}
    if len(cmdlines) > 1:
        return [*lines, "  command lines differ between machines: see the page"]
    told = cmdlines.pop() or "not told"
    return lines + wrap(f"command line: {told}", first="  ", indent="    ", most=2)


def _item(text: str) -> str:
    return wrap(text, first="  ", most=1)[0]


def _named(facts: MachineFacts) -> str:
    return f"{facts.machine.name} (cut short, more boots might tell more)" if facts.cut_short else facts.machine.name


def _clock(machine: Machine) -> str:
    return "counted instructions" if machine.clock == Machine.Clock.INSTRUCTIONS else "wall clock"


def _tags(evidence: Evidence) -> list[str]:
    """Tags help to find a report from a fix; nobody should credit figures that are not evidence."""
    if evidence.virtual or evidence.finding.kind not in {Finding.Kind.REGRESSED, Finding.Kind.SPLIT}:
        return []
    return [
        f"Reported-by: {plain(settings.MAIL_FROM)}",
        f"Closes: {settings.SITE_URL}/series/{evidence.series.pk}/",
    ]


def _capped(lines: list[str], most: int) -> list[str]:
    if len(lines) <= most:
        return lines
    return [*lines[: most - 1], f"  ... {len(lines) - most + 1} more lines on the page of the series"]

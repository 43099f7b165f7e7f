"""What a report rests on: the rows of one finding, checked to be whole, and their figures as plain tables."""

import math
import re
import textwrap
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from django.db.models import Q

from server.builds.models import Build
from server.core.errors import DomainError
from server.detection.bisection.conclusion import together
from server.detection.bisection.walk import Walk, walk_of
from server.detection.findings.vector import as_percent, as_ratio, heard
from server.detection.models import Bisection, BisectionState, Comparison, Finding, Verdict
from server.detection.trials.scope import is_same_code
from server.lab.hosts.probes import first_facts
from server.lab.models import Boot, Machine, Session
from server.lab.trials.life import SAME_CODE
from server.sources.models import Message, Revision, Series
from server.stats.explanation.search import Outcome

_SEPARATED = (Outcome.ONE, Outcome.SEVERAL)
# What chance finds more often than not is for the page, where all facts stand beside it.
_MOST_CHANCE = 0.5


def explanation_sentence(finding: Finding) -> str:
    """The first explanation that chance finds in half of all cases at most; empty without one."""
    for row in finding.explanations:
        if row["outcome"] in _SEPARATED and row["chance"] is not None and row["chance"] <= _MOST_CHANCE:
            text = str(row["text"])
            return f"Why here and not there ({row['metric']} of {row['case']}): {text[:1].lower()}{text[1:]}"
    return ""


_REGARDED = "target__case", "target__metric", "machine__uarch", "culprit"


def culprit_sentence(finding: Finding) -> str:
    """What the bisections say together; empty where there was nothing to look for, or while one is under way."""
    bisections = list(finding.bisections.select_related(*_REGARDED).order_by("machine__name"))
    if not bisections or any(bisection.state not in Bisection.FINAL for bisection in bisections):
        return ""
    # Why a person ended a search is for this site, not for a list.
    said = together([one for one in bisections if one.state != BisectionState.CANCELED])
    return f"Bisection: {said}{'' if said.endswith('.') else '.'}" if said else ""


def walk_sentences(series: Series) -> tuple[str, ...]:
    """One for each patch, then whether they add up; nothing before all of them are measured."""
    walk = walk_of(series)
    return _sentences(walk) if walk is not None and walk.done else ()


def _sentences(walk: Walk) -> tuple[str, ...]:
    return (*(f"patch {row.index} {row.sentence}" for row in walk.rows), *walk.closing)


MOVED = (Verdict.REGRESSED, Verdict.IMPROVED)


@dataclass(frozen=True)
class MachineFigures:
    """A machine as the booted system saw it in this session. `cut_short`: more boots might have told more."""

    machine: Machine
    cpu: str
    cmdline: str
    cut_short: bool


@dataclass(frozen=True)
class Evidence:
    """`comparisons` are as they are heard after the checks; `culprit` and `walk` say which patch does what.

    `explanation`: which facts separate the machines that changed from the others, where that is known.
    """

    finding: Finding
    series: Series
    root: Message | None
    base: Revision
    virtual: bool
    comparisons: tuple[Comparison, ...]
    machines: tuple[MachineFigures, ...]
    builds: tuple[Build, ...]
    gaps: tuple[str, ...]
    culprit: str
    walk: tuple[str, ...]
    explanation: str

    @property
    def moved(self) -> tuple[Comparison, ...]:
        return tuple(row for row in self.comparisons if row.verdict in MOVED)


def gather(finding: Finding) -> Evidence:
    """Raises DomainError `incomplete-report` when a reader could not trust or check what would be told."""
    if finding.series_id is None:
        raise DomainError("incomplete-report", "a change of a branch has no thread to answer on")
    series = Series.objects.select_related("base__tree", "head", "mailing_list").get(pk=finding.series_id)
    if finding.kind == Finding.Kind.INCONCLUSIVE:
        raise DomainError("incomplete-report", "nothing inconclusive is mailed")
    if series.base is None or series.head is None:
        raise DomainError("incomplete-report", "the base of the series is not known")
    sessions = list(
        Session.objects.filter(series=series).select_related(
            "machine__uarch", "base_build__config", "base_build__toolchain", "patched_build"
        )
    )
    comparisons = _comparisons(finding, sessions)
    _check_complete(finding, sessions, comparisons)
    judged = {row.session_id for row in comparisons}
    used = [session for session in sessions if session.pk in judged]
    unbooted = [session for session in sessions if is_same_code(session)]
    return Evidence(
        finding=finding,
        series=series,
        root=root_message(series),
        base=series.base,
        virtual=is_virtual(finding),
        comparisons=comparisons,
        machines=_machine_facts(used),
        builds=tuple({session.base_build_id: session.base_build for session in (*used, *unbooted)}.values()),
        gaps=(
            *(_gap(gap) for gap in finding.gaps),
            *(f"{session.machine.name}: {SAME_CODE}" for session in unbooted),
        ),
        culprit=culprit_sentence(finding),
        walk=walk_sentences(series),
        explanation=explanation_sentence(finding),
    )


def _comparisons(finding: Finding, sessions: list[Session]) -> tuple[Comparison, ...]:
    """What a failed check takes away from the finding is not claimed by its mail either."""
    machine, case = "session__machine", "case__benchmark"
    rows = Comparison.objects.filter(session__in=sessions).select_related(
        f"{machine}__uarch", case, "metric", "core_type"
    )
    ordered = rows.order_by(f"{machine}__uarch__name", f"{machine}__name", f"{case}__name", "case__name", "id")
    return tuple(heard(list(ordered), finding.checks))


def is_virtual(finding: Finding) -> bool:
    """Whether any virtual machine has a part in it; asked of the rows again, because such a mail must never leave."""
    if finding.virtual:
        return True
    judged = Session.objects.filter(series=finding.series_id, comparisons__isnull=False)
    return (
        judged.filter(machine__virtual=True).exists()
        or Boot.objects.filter(session__in=judged, facts__virtual=True).exists()
    )


def root_message(series: Series) -> Message | None:
    """The mail that a reply answers; None when the archive has deleted it.

    One that the series is made of: anybody can send another with the same Message-ID, and recipients of his choice.
    """
    first = series.patches.filter(index=1).values("message")
    own = Message.objects.filter(Q(pk=series.cover_id) | Q(patches__series=series)).distinct()
    root = own.filter(message_id=series.first_message_id).first() or own.filter(pk__in=first).first()
    return None if root is None or root.kind == Message.Kind.DELETED else root


def _check_complete(finding: Finding, sessions: list[Session], comparisons: tuple[Comparison, ...]) -> None:
    if not comparisons and not any(is_same_code(session) for session in sessions):
        raise DomainError("incomplete-report", "there is no comparison to show")
    if finding.kind != Finding.Kind.UNCHANGED and not any(row.verdict in MOVED for row in comparisons):
        raise DomainError("incomplete-report", f"the finding says {finding.kind}, but no cell has moved")
    for row in comparisons:
        numbers = (
            row.base_mean,
            row.base_sd,
            row.patched_mean,
            row.patched_sd,
            row.ratio,
            row.ratio_low,
            row.ratio_high,
        )
        if row.verdict in MOVED and None in numbers:
            raise DomainError("incomplete-report", f"{row} without its numbers")
    told = {row.session_id for row in comparisons}
    said = {gap["machine"] for gap in finding.gaps}
    for session in sessions:
        left_out = (session.machine.virtual and not finding.virtual) or is_same_code(session)
        if session.pk not in told and session.machine.name not in said and not left_out:
            raise DomainError(
                "incomplete-report", f"{session.machine.name} has no result, and the finding does not say so"
            )


def _machine_facts(sessions: list[Session]) -> tuple[MachineFigures, ...]:
    measured = Boot.objects.filter(session__in=sessions, state=Boot.State.MEASURED)
    first = first_facts(measured)
    return tuple(
        MachineFigures(
            machine=session.machine,
            cpu=_text(first.get(session.pk), "model_name"),
            cmdline=_text(first.get(session.pk), "cmdline"),
            cut_short=session.cut_short,
        )
        for session in sorted(sessions, key=lambda s: (s.machine.uarch.name, s.machine.name))
    )


def _text(facts: object, name: str) -> str:
    value = facts.get(name) if isinstance(facts, dict) else None
    return value if isinstance(value, str) else ""


def _gap(gap: dict[str, object]) -> str:
    return f"{gap['machine']}: {gap['reason']}"


WIDTH = 72
# Plus-minus, arrow, dashes, quotation marks, ellipsis: everything else folds to its base letter or to "?".
_REPLACED = {
    0xB1: "+-",
    0x2192: "->",
    0x2013: "-",
    0x2014: "-",
    0x2018: "'",
    0x2019: "'",
    0x201C: '"',
    0x201D: '"',
    0x2026: "...",
}
_WHOLE_FROM, _WHOLE_TO = 1e3, 1e12
_BLANKS = re.compile(r"\s+")


def plain(text: str) -> str:
    """One line of printable ASCII: no control character of a hostile mail or console survives."""
    folded = unicodedata.normalize("NFKD", text.translate(_REPLACED))
    folded = "".join(c for c in folded if not unicodedata.combining(c))
    ascii_only = "".join(c if c.isascii() else "?" for c in _BLANKS.sub(" ", folded))
    return "".join(c for c in ascii_only if c.isprintable()).strip()


def wrap(text: str, *, indent: str = "", first: str = "", most: int | None = None) -> list[str]:
    """`text` in lines; `first` stands before the first line, `indent` before the others."""
    wrapped = textwrap.wrap(
        plain(text),
        WIDTH,
        initial_indent=first or indent,
        subsequent_indent=indent,
        max_lines=most,
        placeholder=" ...",
        break_on_hyphens=False,
    )
    return wrapped or [f"{first or indent}".rstrip()]


def cut(text: str, width: int) -> str:
    text = plain(text)
    return text if len(text) <= width else f"{text[: width - 2]}.."


def table(head: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    """Rows with a name and one text for each column; columns that do not fit beside each other follow below."""
    names = max(len(name) for name, _cells in rows)
    widths = [max(len(title), *(len(cells[i]) for _name, cells in rows)) for i, title in enumerate(head)]
    lines: list[str] = []
    start = 0
    while start < len(head):
        stop = start + 1
        while stop < len(head) and names + sum(w + 2 for w in widths[start : stop + 1]) <= WIDTH:
            stop += 1
        lines.append(_row("", names, head[start:stop], widths[start:stop]))
        lines += [_row(name, names, cells[start:stop], widths[start:stop]) for name, cells in rows]
        start = stop
    return lines


def _row(name: str, names: int, cells: Sequence[str], widths: Sequence[int]) -> str:
    columns = "".join(f"  {cell:<{width}}" for cell, width in zip(cells, widths, strict=True))
    return f"{name:<{names}}{columns}".rstrip()


def number(value: float) -> str:
    """Four significant digits, never in powers of ten for numbers a person can read."""
    return f"{value:.0f}" if _WHOLE_FROM <= abs(value) < _WHOLE_TO else f"{value:.4g}"


_LETTER = {Verdict.REGRESSED: "R", Verdict.IMPROVED: "I"}
# A table rather leaves out columns than shows fewer rows than this.
_FEW_ROWS = 3
_NAME_WIDTH = 34

Cell = Callable[[Comparison], str]


def moved_table(comparisons: Sequence[Comparison], moved: Sequence[Comparison], most: int) -> list[str]:
    """At most `most` lines. Rows: what moved, largest movement first. Columns: every judged microarchitecture."""
    order = sorted(moved, key=_movement, reverse=True)
    return _table(comparisons, list(dict.fromkeys(_row_name(row) for row in order)), _moved_cell, most)


def coverage_table(comparisons: Sequence[Comparison], most: int) -> list[str]:
    """At most `most` lines. Rows: what was measured. Each field is the smallest change that would have been seen."""
    names = sorted({_row_name(row) for row in comparisons})
    return _table(comparisons, names, _seen_cell, most)


def moved_details(moved: Sequence[Comparison], columns: dict[int, str], most: int) -> list[str]:
    """Two lines for each cell: its name, and absolute numbers beside the ratio; as many as fit into `most` lines."""
    order = sorted(moved, key=_movement, reverse=True)
    room = len(order) if 2 * len(order) <= most else max(1, (most - 1) // 2)
    lines = []
    for row in order[:room]:
        better = row.metric.get_better_display()
        lines.append(cut(f"{columns[row.pk]}, {_row_name(row)} ({better}, {row.verdict}):", 72))
        lines.append(f"  {_numbers(row)}")
    if room < len(order):
        lines.append(f"... and {len(order) - room} more cells on the page of the series.")
    return lines


def coverage_lines(comparisons: Sequence[Comparison], columns: dict[int, str]) -> list[str]:
    """For each column how many cells were judged how, and what an unchanged one would have shown."""
    by_column: dict[str, list[Comparison]] = defaultdict(list)
    for row in comparisons:
        by_column[columns[row.pk]].append(row)
    lines = []
    for name, rows in by_column.items():
        counts = Counter(row.verdict for row in rows)
        told = [f"{counts[verdict]} {verdict}" for verdict in Verdict.values if counts[verdict]]
        seen = [row.mde for row in rows if row.verdict == Verdict.UNCHANGED and row.mde is not None]
        mde = f"; would have seen {as_percent(max(seen))}" if seen else ""
        lines += wrap(f"{name}: {', '.join(told)}{mde}", first="  ", indent="    ", most=2)
    return lines


def column_names(comparisons: Sequence[Comparison]) -> dict[int, str]:
    """For each comparison the name of its column: the microarchitecture, made longer where that is ambiguous."""
    machines: dict[str, set[str]] = defaultdict(set)
    cores: dict[str, set[str]] = defaultdict(set)
    for row in comparisons:
        machines[row.session.machine.uarch.name].add(row.session.machine.name)
        cores[row.session.machine.name].add(row.core_type.name)
    names = {}
    for row in comparisons:
        machine = row.session.machine
        name = machine.uarch.name if len(machines[machine.uarch.name]) == 1 else machine.name
        names[row.pk] = plain(f"{name}/{row.core_type.name}" if len(cores[machine.name]) > 1 else name)
    return names


def _table(comparisons: Sequence[Comparison], names: list[str], cell: Cell, most: int) -> list[str]:
    columns = column_names(comparisons)
    fields = {(_row_name(row), columns[row.pk]): cell(row) for row in comparisons}
    head = sorted(dict.fromkeys(columns.values()), key=lambda name: _rank(name, comparisons, columns))
    rows = [(cut(name, _NAME_WIDTH), [fields.get((name, column), "-") for column in head]) for name in names]
    room, shown = 0, len(head) + 1
    while shown > 1 and room < min(len(rows), _FEW_ROWS):
        shown -= 1
        # Columns that do not fit beside the others stand below them, and cost rows.
        blocks = len(_part(head, rows, shown)) // (len(rows) + 1)
        room = (most - 1) // blocks - 1
    lines = _part(head, rows[:room], shown)
    left = [f"{len(rows) - room} more rows"] if len(rows) > room else []
    left += [f"{len(head) - shown} more columns"] if len(head) > shown else []
    return [*lines, f"... {' and '.join(left)} on the page of the series."] if left else lines


def _part(head: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]], columns: int) -> list[str]:
    return table(head[:columns], [(name, cells[:columns]) for name, cells in rows])


def _rank(name: str, comparisons: Sequence[Comparison], columns: dict[int, str]) -> tuple[int, str]:
    """Columns in which something moved first: they must not be among the ones that are left out."""
    moved = any(columns[row.pk] == name and row.verdict in _LETTER for row in comparisons)
    return (0 if moved else 1, name)


def _moved_cell(row: Comparison) -> str:
    if row.verdict in _LETTER and row.ratio is not None:
        return f"{as_ratio(row.ratio)} {_LETTER[Verdict(row.verdict)]}"
    return "=" if row.verdict == Verdict.UNCHANGED else "?"


def _seen_cell(row: Comparison) -> str:
    return as_percent(row.mde) if row.verdict == Verdict.UNCHANGED and row.mde is not None else "?"


def _row_name(row: Comparison) -> str:
    return plain(f"{row.case.benchmark.name}/{row.case.name} {row.metric.name}")


def _numbers(row: Comparison) -> str:
    """Only called for cells that moved, which are checked to have all of these."""
    base = f"{_value(row.base_mean)} +- {_value(row.base_sd)}"
    patched = f"{_value(row.patched_mean)} +- {_value(row.patched_sd)}"
    interval = f"[{_value(row.ratio_low, 3)}, {_value(row.ratio_high, 3)}]"
    boots = f"{row.base_boots}+{row.patched_boots} boots"
    return f"{base} -> {patched} {plain(row.metric.unit)}, {as_ratio(row.ratio or 0.0)} {interval}, {boots}"


def _value(value: float | None, digits: int = 0) -> str:
    assert value is not None
    return f"{value:.{digits}f}" if digits else number(value)


def _movement(row: Comparison) -> float:
    return abs(math.log(row.ratio)) if row.ratio and row.ratio > 0 else 0.0

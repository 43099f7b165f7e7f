"""What a finding rests on: its rows, checked to be whole, as the plain data that a mail is composed of; and what is
told after a first mail.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from email.utils import parseaddr
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db.models import Q, QuerySet
from django.urls import NoReverseMatch, reverse

from server.core.errors import DomainError
from server.detection.findings.table import sessions_of
from server.detection.findings.vector import heard, speaker_of
from server.detection.models import Comparison, Finding, Verdict
from server.detection.models.finding import CHANGES
from server.detection.models.timeline import MeasuredHead
from server.detection.trials.scope import is_same_code
from server.lab.hosts.probes import first_facts
from server.lab.models import Boot, Machine, Session
from server.lab.trials.life import SAME_CODE
from server.reports.composer.case_words import CaseWords, words_of
from server.reports.composer.causes import culprit_of, range_of, separation
from server.reports.composer.told import (
    Correction,
    Digest,
    DigestEntry,
    FollowUp,
    RanMachine,
    Retraction,
    ToldCell,
    ToldFinding,
    ToldUarch,
    WhatRan,
    Writer,
)
from server.reports.composer.vector_words import by_uarch, largest
from server.reports.composer.wording import distinct
from server.reports.models import Report
from server.sources.models import Message, Revision, Series, Tree


def gather(finding: Finding) -> ToldFinding:
    """Raises DomainError `incomplete-report` when a reader could not trust or check what would be told."""
    # Of a canary it is asked whether its mail arrives, whatever that says.
    if finding.kind == Finding.Kind.INCONCLUSIVE and not finding.canary:
        raise DomainError("incomplete-report", "nothing inconclusive is mailed")
    sessions = list(_sessions(finding))
    comparisons = _comparisons(sessions, finding.checks)
    _check_complete(finding, sessions, comparisons)
    return _account(finding, sessions, comparisons)


def _account(finding: Finding, sessions: Sequence[Session], comparisons: Sequence[Comparison]) -> ToldFinding:
    """All that is told of it, of these cells."""
    base, patched = _ends(finding)
    judged = {row.session_id for row in comparisons}
    used = [session for session in sessions if session.pk in judged]
    unbooted = [session for session in sessions if is_same_code(session)]
    cells = _told_cells(comparisons)
    series = finding.series
    root = root_message(series) if series else None
    return ToldFinding(
        writer=_writer(),
        kind=finding.kind,
        virtual=is_virtual(finding),
        subject=(root.subject if root else "") or str(series or ""),
        uarchs=_uarchs(finding, cells, sessions),
        cells=cells,
        columns=tuple(distinct(cell.column for cell in cells)),
        run=_what_ran(base, patched, used, unbooted),
        page=_page_of(finding),
        reproduce=_reproduce(finding, cells),
        agent=_agent(),
        meanings=_meanings(comparisons, cells),
        gaps=(
            *(f"{gap['machine']}: {gap['reason']}" for gap in finding.gaps),
            *(f"{session.machine.name}: {SAME_CODE}" for session in unbooted),
        ),
        separation=separation(finding, {session.machine.name: session.machine.uarch.name for session in sessions}),
        culprit=culprit_of(finding),
        range=range_of(finding),
        version=f"v{series.numeral}" if series else "",
        uncovered=_uncovered(finding, base.tree, sessions),
    )


def _uncovered(finding: Finding, tree: Tree, sessions: Sequence[Session]) -> tuple[tuple[str, str], ...]:
    """Microarchitectures of the site's physical machines that neither a session nor a gap of the finding knows."""
    if finding.virtual:
        return ()
    known = {session.machine.uarch.name for session in sessions} | {str(gap["uarch"]) for gap in finding.gaps}
    rows = (
        Machine.objects.filter(enabled=True, virtual=False).order_by("uarch__name").values_list("uarch__name", "health")
    )
    health: dict[str, set[str]] = defaultdict(set)
    for name, state in rows:
        health[name].add(state)
    return tuple((name, _reason(name, tree, states)) for name, states in health.items() if name not in known)


def _reason(uarch: str, tree: Tree, health: set[str]) -> str:
    if Machine.Health.GOOD not in health:
        return "out of service"
    return f"the tree {tree.name} does not ask for them" if tree.uarchs and uarch not in tree.uarchs else ""


def _writer() -> Writer:
    return Writer(settings.MAIL_FROM, parseaddr(settings.MAIL_FROM)[1])


def _page_of(finding: Finding) -> str:
    """Where all its data are."""
    path = f"series/{finding.series_id}/" if finding.series_id else f"findings/{finding.pk}/"
    return f"{settings.SITE_URL.rstrip('/')}/{path}"


def _sessions(finding: Finding) -> "QuerySet[Session]":
    of = Session.objects.filter(series=finding.series_id) if finding.series_id else sessions_of(finding)
    return of.select_related("machine__uarch", "base_build__config", "base_build__toolchain", "patched_build")


def _cells_as_measured(finding: Finding) -> tuple[ToldCell, ...]:
    """Its cells, before any check took something away."""
    return _told_cells(_comparisons(list(_sessions(finding)), ()))


def _as_it_stands(finding: Finding) -> ToldFinding:
    """What an earlier finding says, whether or not it would be told today."""
    sessions = list(_sessions(finding))
    return _account(finding, sessions, _comparisons(sessions, finding.checks))


def _comparisons(sessions: Sequence[Session], checks: Sequence[Mapping[str, Any]]) -> tuple[Comparison, ...]:
    """What a failed check takes away from the finding is not claimed by its mail either."""
    machine, case = "session__machine", "case__benchmark"
    rows = Comparison.objects.filter(session__in=sessions).select_related(
        f"{machine}__uarch", case, "metric", "core_type"
    )
    ordered = rows.order_by(f"{machine}__uarch__name", f"{machine}__name", f"{case}__name", "case__name", "id")
    return tuple(heard(list(ordered), checks))


def is_virtual(finding: Finding) -> bool:
    """Whether any virtual machine has a part in it; asked of the rows again, because such a mail must never leave."""
    if finding.virtual:
        return True
    of = Session.objects.filter(series=finding.series_id) if finding.series_id else sessions_of(finding)
    judged = of.filter(comparisons__isnull=False)
    return (
        judged.filter(machine__virtual=True).exists()
        or Boot.objects.filter(session__in=judged.values("pk"), facts__virtual=True).exists()
    )


def root_message(series: Series) -> Message | None:
    """The mail that a reply answers; None when the archive has deleted it.

    One that the series is made of: anybody can send another with the same Message-ID, and recipients of his choice.
    """
    first = series.patches.filter(index=1).values("message")
    own = Message.objects.filter(Q(pk=series.cover_id) | Q(patches__series=series)).distinct()
    root = own.filter(message_id=series.first_message_id).first() or own.filter(pk__in=first).first()
    return None if root is None or root.kind == Message.Kind.DELETED else root


def _ends(finding: Finding) -> tuple[Revision, Revision]:
    if finding.series is not None:
        base, patched = finding.series.base, finding.series.head
        missing = "the base of the series is not known"
    else:
        base, patched, missing = finding.before, finding.after, "where the change lies is not known"
    if base is None or patched is None:
        raise DomainError("incomplete-report", missing)
    return base, patched


def _check_complete(finding: Finding, sessions: Sequence[Session], comparisons: Sequence[Comparison]) -> None:
    _ends(finding)
    if not comparisons and not any(is_same_code(session) for session in sessions):
        raise DomainError("incomplete-report", "there is no comparison to show")
    moved = finding.kind not in (Finding.Kind.UNCHANGED, Finding.Kind.INCONCLUSIVE)
    if moved and not any(row.verdict in CHANGES for row in comparisons):
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
        if row.verdict in CHANGES and None in numbers:
            raise DomainError("incomplete-report", f"{row} without its numbers")
    told = {row.session_id for row in comparisons}
    said = {gap["machine"] for gap in finding.gaps}
    for session in sessions:
        left_out = (session.machine.virtual and not finding.virtual) or is_same_code(session)
        if session.pk not in told and session.machine.name not in said and not left_out:
            raise DomainError(
                "incomplete-report", f"{session.machine.name} has no result, and the finding does not say so"
            )


def _told_cells(comparisons: Sequence[Comparison]) -> tuple[ToldCell, ...]:
    """Columns are microarchitectures; all of them machines, or kinds of cores, where that would be ambiguous.

    Machines of one microarchitecture that contradict each other in a case tell nothing there.
    """
    columns = _columns(comparisons)
    words = words_of(row.case for row in comparisons)
    groups: dict[tuple[int, int, int, str], list[Comparison]] = defaultdict(list)
    for row in comparisons:
        key = (row.session.machine.uarch_id, row.case_id, row.metric_id, row.core_type.name)
        groups[key].append(row)
    speakers: set[int] = set()
    contested: set[int] = set()
    for rows in groups.values():
        telling = [row for row in rows if row.verdict != Verdict.INCONCLUSIVE]
        speakers.add(speaker_of(telling).pk if telling else _nearest(rows).pk)
        if len({row.verdict for row in telling}) > 1:
            contested.update(row.pk for row in rows)
    return tuple(
        _cell(row, columns[row.pk], words[row.case_id], speaks=row.pk in speakers, contested=row.pk in contested)
        for row in comparisons
    )


def _nearest(rows: Sequence[Comparison]) -> Comparison:
    """Of machines that cannot tell the one that would have seen the smallest change."""
    return min(rows, key=lambda row: row.mde if row.mde is not None else float("inf"))


def _columns(comparisons: Sequence[Comparison]) -> dict[int, str]:
    machines: dict[str, set[str]] = defaultdict(set)
    cores: dict[str, set[str]] = defaultdict(set)
    for row in comparisons:
        machines[row.session.machine.uarch.name].add(row.session.machine.name)
        cores[row.session.machine.name].add(row.core_type.name)
    by_machine = any(len(names) > 1 for names in machines.values())
    by_core = {name for name, kinds in cores.items() if len(kinds) > 1}
    columns = {}
    for row in comparisons:
        machine = row.session.machine
        name = machine.name if by_machine else machine.uarch.name
        columns[row.pk] = f"{name}/{row.core_type.name}" if machine.name in by_core else name
    return columns


def _cell(row: Comparison, column: str, words: CaseWords, *, speaks: bool, contested: bool) -> ToldCell:
    return ToldCell(
        column=column,
        uarch=row.session.machine.uarch.name,
        benchmark=row.case.benchmark.name,
        case=row.case.name,
        words=words.words,
        parameters=words.parameters,
        metric=row.metric.name,
        unit=row.metric.unit,
        better=row.metric.better,
        verdict=Verdict.INCONCLUSIVE.value if contested else row.verdict,
        base_mean=row.base_mean,
        base_sd=row.base_sd,
        patched_mean=row.patched_mean,
        patched_sd=row.patched_sd,
        ratio=row.ratio,
        low=row.ratio_low,
        high=row.ratio_high,
        boots=(row.base_boots, row.patched_boots),
        mde=row.mde,
        speaks=speaks,
    )


def _uarchs(finding: Finding, cells: Sequence[ToldCell], sessions: Sequence[Session]) -> tuple[ToldUarch, ...]:
    """The stored vector, without what no cell bears out any more."""
    found: dict[str, set[str]] = defaultdict(set)
    for cell in cells:
        if cell.speaks:
            found[cell.uarch].add(cell.verdict)
    same = {session.machine.uarch.name for session in sessions if is_same_code(session)}
    free = {session.machine.uarch.name for session in sessions if not session.machine.cases}
    stored = dict(finding.verdicts.order_by("uarch__name").values_list("uarch__name", "verdict"))
    missing: dict[str, str] = {}
    for gap in finding.gaps:
        missing.setdefault(str(gap["uarch"]), str(gap["reason"]))
    names = sorted({*stored, *found, *same, *missing} - {""})
    return tuple(
        ToldUarch(
            name=name,
            verdict=_borne_out(stored.get(name, ""), found.get(name, set()), same_code=name in same),
            missing="" if name in found or name in same else missing.get(name, "no measurements"),
            same_code=name in same and name not in found,
            chosen=name in found and name not in free,
        )
        for name in names
    )


def _borne_out(stored: str, verdicts: set[str], *, same_code: bool) -> str:
    if not verdicts:
        return Verdict.UNCHANGED.value if same_code else Verdict.INCONCLUSIVE.value
    moved = [verdict.value for verdict in CHANGES if verdict in verdicts]
    if stored != Verdict.INCONCLUSIVE and moved:
        return "split" if len(moved) > 1 else moved[0]
    if stored == Verdict.UNCHANGED or verdicts == {Verdict.UNCHANGED.value}:
        return Verdict.UNCHANGED.value
    return Verdict.INCONCLUSIVE.value


def _what_ran(base: Revision, patched: Revision, used: Sequence[Session], unbooted: Sequence[Session]) -> WhatRan:
    first = first_facts(Boot.objects.filter(session__in=used, state=Boot.State.MEASURED))
    builds = {session.base_build_id: session.base_build for session in (*used, *unbooted)}.values()
    machines = [
        RanMachine(
            name=session.machine.name,
            uarch=session.machine.uarch.name,
            cpu=_text(first.get(session.pk), "model_name"),
            clock="counted instructions" if session.machine.clock == "instructions" else "wall clock",
            cut_short=session.cut_short,
        )
        for session in sorted(used, key=lambda one: (one.machine.uarch.name, one.machine.name))
    ]
    return WhatRan(
        base=base.sha,
        base_subject=base.subject,
        tree=base.tree.name,
        kernels=tuple(
            distinct(
                f"{build.config.name} ({build.arch}), {build.compiler_version or build.toolchain.compiler}"
                for build in builds
            )
        ),
        machines=tuple(machines),
        command_lines=tuple(distinct(_text(first.get(session.pk), "cmdline") for session in used)),
        patched=patched.sha,
    )


def _text(facts: object, name: str) -> str:
    value = facts.get(name) if isinstance(facts, dict) else None
    return value if isinstance(value, str) else ""


def _reproduce(finding: Finding, cells: Sequence[ToldCell]) -> str:
    """What the agent is told to run again: what lost most, else won most, else any case."""
    of = [cell for cell in cells if cell.speaks]
    cell = largest(of, Verdict.REGRESSED) or largest(of, Verdict.IMPROVED) or next(iter(of), None)
    if cell is None:
        return ""
    name, number = ("api-series-case", finding.series_id) if finding.series_id else ("api-finding-case", finding.pk)
    try:
        reverse(name, args=[number, cell.benchmark, cell.case])
    except NoReverseMatch:
        return ""
    return f"{cell.benchmark}/{cell.case}"


def _agent() -> str:
    """Where the site hands out the agent, if it has one."""
    return f"{settings.SITE_URL.rstrip('/')}{reverse('agent')}" if Path(settings.LOCAL_AGENT).is_file() else ""


def _meanings(comparisons: Sequence[Comparison], cells: Sequence[ToldCell]) -> tuple[tuple[str, str], ...]:
    """Of words in names of cases, and of what their parameters are called; none that means two things."""
    used = {word for cell in cells for word in (*cell.words, *cell.parameters)}
    found: dict[str, set[str]] = defaultdict(set)
    for row in comparisons:
        for word, meaning in row.case.benchmark.words.items():
            if word in used:
                found[word].add(meaning)
    return tuple((word, meanings.pop()) for word, meanings in found.items() if len(meanings) == 1)


_VIRTUAL = re.compile(r"\AVIRTUAL, NOT EVIDENCE:[^\n]*\n+")


def gather_bisection(finding: Finding) -> ToldFinding:
    """What its bisection found. DomainError `incomplete-report` where nothing was found that can be told."""
    told = gather(finding)
    if told.culprit is None or not told.culprit.sentence:
        raise DomainError("incomplete-report", "its bisection has said nothing yet")
    return replace(told, bisected=True)


def gather_follow_up(finding: Finding, earlier_report: Report) -> FollowUp:
    """The finding of a newer version beside that of which `earlier_report` told."""
    if earlier_report.finding is None:
        raise DomainError("incomplete-report", "the earlier report tells of no finding")
    return FollowUp(before=_as_it_stands(earlier_report.finding), now=gather(finding))


def gather_retraction(report: Report, reason: str) -> Retraction:
    """What `report` told, taken back for `reason`."""
    finding = report.finding
    if finding is None:
        raise DomainError("incomplete-report", "the report tells of no finding")
    if not reason.strip():
        raise DomainError("incomplete-report", "a retraction says why")
    root = root_message(finding.series) if finding.series else None
    return Retraction(
        writer=_writer(),
        subject=(root.subject if root else "") or report.subject,
        said=_first_sentence(report),
        sent_at=_sent_at(report),
        why=reason,
        withdrawn=_claims(_cells_as_measured(finding)),
        page=_page_of(finding),
        virtual=is_virtual(finding),
    )


def gather_correction(report: Report) -> Correction:
    """What stands in place of what `report` told."""
    if report.finding is None:
        raise DomainError("incomplete-report", "the report tells of no finding")
    return Correction(said=_first_sentence(report), sent_at=_sent_at(report), now=gather(report.finding))


def gather_digest(tree: Tree, since: datetime, until: datetime, findings: Sequence[Finding]) -> Digest:
    """The tree's findings in that time, of those that say something."""
    heads = MeasuredHead.objects.filter(branch__tree=tree, created_at__gte=since, created_at__lt=until).count()
    said = [finding for finding in findings if finding.kind != Finding.Kind.INCONCLUSIVE]
    return Digest(
        writer=_writer(),
        tree=tree.name,
        since=since,
        until=until,
        entries=tuple(_entry(finding) for finding in said),
        heads=heads,
        page=f"{settings.SITE_URL.rstrip('/')}/findings/?tree={tree.name}",
    )


def _entry(finding: Finding) -> DigestEntry:
    told = _as_it_stands(finding)
    made_by = finding.culprit
    series = finding.series
    return DigestEntry(
        kind=told.kind,
        uarchs=told.uarchs,
        cells=told.speaking,
        revision=made_by.sha if made_by and series is None else "",
        subject=series.subject if series else made_by.subject if made_by else "",
        news=str(Finding.State(finding.state).label),
        page=_page_of(finding),
        virtual=told.virtual,
    )


def _first_sentence(report: Report) -> str:
    """The paragraph with which its mail begins."""
    text = _VIRTUAL.sub("", report.body.lstrip("\n"))
    return " ".join(text.partition("\n\n")[0].split())


def _sent_at(report: Report) -> datetime | None:
    delivery = getattr(report, "delivery", None)
    return delivery.sent_at if delivery is not None else None


def _claims(cells: Sequence[ToldCell]) -> tuple[ToldCell, ...]:
    """The largest of each direction, by microarchitecture."""
    found = []
    for of_it in by_uarch([cell for cell in cells if cell.speaks]).values():
        found += [largest(of_it, verdict.value) for verdict in (Verdict.REGRESSED, Verdict.IMPROVED)]
    return tuple(cell for cell in found if cell is not None)

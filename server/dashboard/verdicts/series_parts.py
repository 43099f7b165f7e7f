"""The parts of a series' page that are folded: each has an address of its own, and reads only what it shows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q

from server.builds.models import Build
from server.dashboard.rows.host_status import session_rows
from server.dashboard.rows.mail_commands import commands_about
from server.dashboard.rows.postings import kernel_facts, patches_of, sender_facts, shown_trailers
from server.dashboard.rows.verdicts import verdict_matrix
from server.dashboard.rows.work import blame_sentences, history
from server.dashboard.verdicts.drawings import drawn_boots, drawn_walk
from server.detection.bisection.walk import walk_of
from server.detection.findings.table import ComparisonTable
from server.detection.models import Finding
from server.reports.leaving import in_public, mail_readers, with_mails
from server.reports.models import Delivery, Report
from server.reports.progress import series_history, series_progress
from server.reports.sending.readers import opt_outs
from server.sources.models import Series

_LOG_TAILS = 20


@dataclass(frozen=True, slots=True)
class BuildRow:
    id: int
    arm: str
    sha: str
    config: str
    toolchain: str
    compiler: str
    arch: str
    state: str
    state_label: str
    reason: str
    state_since: datetime
    build_id: str
    seconds: float | None
    first_error: str
    log_tail: str


@dataclass(frozen=True, slots=True)
class Mail:
    """`kind` says what it is, where it is not the first word about its finding."""

    number: int
    kind: str
    subject: str
    body: str
    to: tuple[str, ...]
    cc: tuple[str, ...]
    public_to: str
    public_cc: str
    in_reply_to: str
    report_state: str
    report_label: str
    report_reason: str
    message_id: str
    delivery_state: str
    delivery_label: str
    delivery_reason: str
    tries: int
    sent_at: datetime | None


def _builds(series: Series) -> list[Build]:
    """Builds of the base and of the last patch; same content is the same kernel, whoever wanted it first."""
    if series.base is None or series.head is None:
        return []
    content = {series.base.tree_sha, series.head.tree_sha}
    builds = Build.objects.filter(tree_sha__in=content).select_related("config", "toolchain").order_by("id")
    return list(builds.defer("log_tail", "config__fragment"))


def _log_tails(builds: Sequence[Build]) -> dict[int, str]:
    """Of those that failed without an error that was found: the page shows no others."""
    silent = [row.pk for row in builds if row.state == Build.State.FAILED and not row.first_error]
    return dict(Build.objects.filter(pk__in=silent[:_LOG_TAILS]).values_list("pk", "log_tail")) if silent else {}


def _build_rows(series: Series, builds: Sequence[Build]) -> tuple[BuildRow, ...]:
    if series.base is None or series.head is None:
        return ()
    arms = {series.head.tree_sha: "patched", series.base.tree_sha: "base"}
    identical = len(arms) == 1
    tails = _log_tails(builds)
    return tuple(
        BuildRow(
            id=row.pk,
            arm="base = patched" if identical else arms[row.tree_sha],
            sha=series.base.sha if row.tree_sha == series.base.tree_sha else series.head.sha,
            config=row.config.name,
            toolchain=row.toolchain.name,
            compiler=row.compiler_version,
            arch=row.arch,
            state=row.state,
            state_label=Build.State(row.state).label,
            reason=row.reason,
            state_since=row.state_since,
            build_id=row.build_id,
            seconds=row.seconds,
            first_error=row.first_error if row.state == Build.State.FAILED else "",
            log_tail=tails.get(row.pk, ""),
        )
        for row in builds
    )


# Of one finding; a search asked for again and again may tell more.
_MOST_MAILS = 20


def _mails(finding: Finding) -> tuple[Mail, ...]:
    """All that was told of it, or is to be, in its order. Two queries."""
    told = Report.objects.filter(finding=finding).exclude(kind__in=Report.WANTED).order_by("pk")
    reports = list(with_mails(told)[:_MOST_MAILS])
    out = opt_outs(address for report in reports for address in (*report.to, *report.cc))
    return tuple(_mail(report, out) for report in reports)


def _mail(report: Report, out: Mapping[str, datetime]) -> Mail:
    delivery: Delivery | None = getattr(report, "delivery", None)
    to, cc = mail_readers(report, delivery, out)
    return Mail(
        number=report.pk,
        kind="" if report.kind in Report.FIRST else str(report.get_kind_display()),
        subject=report.subject,
        body=report.body,
        to=tuple(to),
        cc=tuple(cc),
        public_to=in_public(to, report),
        public_cc=in_public(cc, report),
        in_reply_to=report.in_reply_to,
        report_state=report.state,
        report_label=Report.State(report.state).label,
        report_reason=report.reason,
        message_id=delivery.message_id if delivery else "",
        delivery_state=delivery.state if delivery else "",
        delivery_label=Delivery.State(delivery.state).label if delivery else "",
        delivery_reason=delivery.reason if delivery else "",
        tries=delivery.tries if delivery else 0,
        sent_at=delivery.sent_at if delivery else None,
    )


Context = dict[str, Any]
# The cells of all sessions, read when they are first asked for: the head of the page may have them.
TableOnce = Callable[[], ComparisonTable]


def _figures(_series: Series, finding: Finding | None, table: TableOnce) -> Context:
    return {"matrix": verdict_matrix(table()), "gaps": finding.gaps if finding else ()}


def _boots(_series: Series, _finding: Finding | None, table: TableOnce) -> Context:
    return drawn_boots(table())


def _patches(series: Series, finding: Finding | None, _table: TableOnce) -> Context:
    walk = walk_of(series) if finding is not None else None
    return {
        "patches": patches_of(series),
        "trailers": shown_trailers(series),
        "walk": walk,
        "staircase": drawn_walk(walk) if walk else None,
    }


def _kernels(series: Series, _finding: Finding | None, _table: TableOnce) -> Context:
    builds = _builds(series)
    return {
        "posting": kernel_facts(series),
        "builds": _build_rows(series, builds),
        "blame": blame_sentences(series, builds),
    }


def _way(series: Series, _finding: Finding | None, _table: TableOnce) -> Context:
    return {"progress": series_progress(series)}


def _sessions(series: Series, _finding: Finding | None, _table: TableOnce) -> Context:
    return {"sessions": session_rows(Q(series=series))}


def _reply(_series: Series, finding: Finding | None, _table: TableOnce) -> Context:
    return {"mails": _mails(finding), "commands": commands_about(finding)} if finding else {"mails": ()}


def _senders(series: Series, _finding: Finding | None, _table: TableOnce) -> Context:
    return {"posting": sender_facts(series)}


def _history(series: Series, _finding: Finding | None, _table: TableOnce) -> Context:
    return {"trace": series.trace, "history": history(series_history(series), fold=True)}


@dataclass(frozen=True, slots=True)
class SeriesPart:
    """`slug` is its address below that of the series."""

    slug: str
    title: str
    read: Callable[[Series, Finding | None, TableOnce], Context]


PARTS: Mapping[str, SeriesPart] = {
    part.slug: part
    for part in (
        SeriesPart("figures", "Figures", _figures),
        SeriesPart("boots", "Boots", _boots),
        SeriesPart("patches", "Patches", _patches),
        SeriesPart("kernels", "Kernels", _kernels),
        SeriesPart("sessions", "Sessions", _sessions),
        SeriesPart("way", "Way", _way),
        SeriesPart("mail", "Reply", _reply),
        SeriesPart("senders", "Senders", _senders),
        SeriesPart("history", "History", _history),
    )
}

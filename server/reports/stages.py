"""The six stages on the way from a mail to a reply, each told from the rows alone."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from django.conf import settings

from server.builds.blame import blame
from server.builds.models import Build, BuildState
from server.detection.models import Finding, FindingState
from server.lab.models import BootState, Machine, Session, SessionState
from server.reports.models import Delivery, DeliveryState, Report, ReportState
from server.reports.rows import SeriesRows
from server.sources.models import SeriesState

StageName = Literal["mails", "apply", "builds", "sessions", "verdict", "report"]
StageState = Literal["waiting", "running", "done", "failed"]
_NOT_YET = {
    FindingState.CANDIDATE: "being checked before it is claimed",
    FindingState.BISECTING: "the patch that made it is being looked for",
}


@dataclass(frozen=True, slots=True)
class BuildProgress:
    """One kernel that a stage waits for; `build` is None until it is wanted."""

    arm: str
    build: int | None
    config: str
    toolchain: str
    state: str
    detail: str


@dataclass(frozen=True, slots=True)
class SessionProgress:
    """One machine; `session` is None until it is planned."""

    machine: str
    uarch: str
    virtual: bool
    clock: str
    session: int | None
    state: str
    measured: int
    failed: int
    planned: int
    detail: str


@dataclass(frozen=True, slots=True)
class Stage:
    name: StageName
    state: StageState
    detail: str = ""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    # Waits for a person: an approval, a switch.
    held: bool = False
    builds: tuple[BuildProgress, ...] = ()
    sessions: tuple[SessionProgress, ...] = ()


def mails_stage(rows: SeriesRows) -> Stage:
    series = rows.series
    ready = rows.entered.get(SeriesState.READY) or rows.entered.get(SeriesState.HELD)
    count = f"{rows.patches} of {series.total} patches"
    if series.state == SeriesState.INCOMPLETE:
        return Stage("mails", "running", f"{count} have arrived", series.created_at)
    if series.state == SeriesState.HELD and series.checked_at is None:
        return Stage("mails", "running", f"{count}; its senders are being checked", series.created_at)
    if series.state == SeriesState.HELD:
        detail = series.reason or SeriesState.HELD.label
        return Stage("mails", "waiting", f"{count}; {detail}", series.created_at, held=True)
    if series.state == SeriesState.REFUSED and SeriesState.READY not in rows.entered:
        return Stage("mails", "failed", series.reason, series.created_at, series.state_since)
    if series.state == SeriesState.SUPERSEDED and ready is None and series.head is None:
        return Stage("mails", "waiting", f"{count}; {_superseded(rows)}", series.created_at)
    return Stage("mails", "done", count, series.created_at, ready or series.created_at)


def apply_stage(rows: SeriesRows) -> Stage:
    series = rows.series
    started = rows.entered.get(SeriesState.READY)
    if series.base is not None and series.head is not None:
        doubt = ", an uncertain base" if series.base_certain is False else ""
        detail = f"on {series.base.sha[:12]} ({series.base.subject}){doubt}"
        return Stage("apply", "done", detail, started, rows.entered.get(SeriesState.APPLIED, series.state_since))
    if series.state == SeriesState.REFUSED:
        return Stage("apply", "failed", series.reason, started, series.state_since)
    if series.state == SeriesState.READY:
        return Stage("apply", "running", series.reason or "looking for the base and applying", started)
    detail = _superseded(rows) if series.state == SeriesState.SUPERSEDED else ""
    return Stage("apply", "waiting", detail)


def builds_stage(rows: SeriesRows) -> Stage:
    if rows.series.base is None or rows.series.head is None:
        return Stage("builds", "waiting")
    items = tuple(_build_items(rows))
    if not items:
        return Stage("builds", "waiting", "no enabled machine wants a kernel")
    builds = list(rows.builds.values())
    if not builds:
        return Stage("builds", "waiting", _superseded(rows), builds=items)
    started = min(build.created_at for build in builds)
    if any(item.state == BuildState.CANCELED for item in items):
        return Stage("builds", "waiting", _superseded(rows), started, builds=items)
    made = {key: _is_made(rows, build) for key, build in rows.builds.items()}
    detail = f"{sum(made.values())} of {len(items)} kernels"
    open_ones = [key for key, build in rows.builds.items() if not made[key] and build.state != BuildState.FAILED]
    if open_ones or len(made) < len(items):
        return Stage("builds", "running", detail, started, builds=items)
    ended = max(build.state_since for build in builds)
    if not all(made.values()):
        detail = "; ".join([detail, *_failures(rows)])
    usable = any(made["base", recipe] and made["patched", recipe] for recipe in rows.recipes)
    return Stage("builds", "done" if usable else "failed", detail, started, ended, builds=items)


def _is_made(rows: SeriesRows, build: Build) -> bool:
    """Whether this series had its kernel: files that were removed after it was booted take nothing back."""
    return bool(build.build_id) if rows.sessions else build.state == BuildState.BUILT


def _failures(rows: SeriesRows) -> list[str]:
    """Whose fault it is, for each configuration in which a kernel does not build."""
    found = []
    for recipe in rows.recipes:
        base, patched = rows.builds["base", recipe], rows.builds["patched", recipe]
        if sentence := blame(base, patched).sentence:
            found.append(f"{sentence} ({base.config.name})")
    return found


def _build_items(rows: SeriesRows) -> Iterable[BuildProgress]:
    recipes = {(m.config_id, m.toolchain_id): (m.config.name, m.toolchain.name) for m in rows.machines}
    recipes |= {recipe: (build.config.name, build.toolchain.name) for (_arm, recipe), build in rows.builds.items()}
    for recipe in rows.recipes:
        for arm in ("base", "patched"):
            build = rows.builds.get((arm, recipe))
            detail = _build_detail(rows, build) if build else "not wanted yet"
            state = build.state if build else "missing"
            yield BuildProgress(arm, build.pk if build else None, *recipes[recipe], state, detail)


def _build_detail(rows: SeriesRows, build: Build) -> str:
    if build.state in {BuildState.DISPATCHED, BuildState.RUNNING}:
        return rows.working.get(("build", build.pk)) or BuildState(build.state).label
    return build.reason or BuildState(build.state).label


def sessions_stage(rows: SeriesRows) -> Stage:
    planned = rows.sessions
    if not planned:
        items = tuple(_session_item(rows, machine, None) for machine in rows.machines)
        return Stage("sessions", "waiting", _superseded(rows), sessions=items)
    items = tuple(_session_item(rows, session.machine, session) for session in planned)
    started = min(session.created_at for session in planned)
    done = sum(session.state == SessionState.DONE for session in planned)
    boots = sum(item.measured for item in items), sum(item.measured + item.failed + item.planned for item in items)
    detail = f"{done} of {len(items)} machines, {boots[0]} of {boots[1]} boots measured"
    if any(session.state not in Session.FINAL for session in planned):
        return Stage("sessions", "running", detail, started, sessions=items)
    missing = "; ".join(f"{item.machine}: {item.detail}" for item in items if item.state != SessionState.DONE)
    detail = f"{detail}; {missing}" if missing else detail
    ended = max(session.state_since for session in planned)
    return Stage("sessions", "done" if done else "failed", detail, started, ended, sessions=items)


def _session_item(rows: SeriesRows, machine: Machine, session: Session | None) -> SessionProgress:
    counts = rows.boots.get(session.pk, {}) if session else {}
    detail, state, session_id = "not planned yet", "missing", None
    if session:
        session_id, state = session.pk, session.state
        detail = session.reason or SessionState(session.state).label
        if state in {SessionState.DISPATCHED, SessionState.RUNNING}:
            detail = rows.working.get(("session", session.pk)) or detail
    return SessionProgress(
        machine=machine.name,
        uarch=machine.uarch.name,
        virtual=machine.virtual,
        clock=machine.clock,
        session=session_id,
        state=state,
        measured=counts.get(BootState.MEASURED, 0),
        failed=counts.get(BootState.FAILED, 0),
        planned=counts.get(BootState.PLANNED, 0) + counts.get(BootState.RUNNING, 0),
        detail=detail,
    )


def verdict_stage(rows: SeriesRows, sessions: Stage) -> Stage:
    finding = rows.finding
    if finding is not None:
        return _judged(finding, sessions)
    if sessions.state == "failed":
        return Stage("verdict", "waiting", "nothing was measured", sessions.ended_at)
    if sessions.state == "done" and not _judgeable(rows):
        detail = "virtual machines only: stored, not judged"
        return Stage("verdict", "done", detail, sessions.ended_at, sessions.ended_at)
    if sessions.state == "done" and rows.series.state != SeriesState.SUPERSEDED:
        return Stage("verdict", "running", "comparing base with patched", sessions.ended_at)
    return Stage("verdict", "waiting", _superseded(rows))


def _judged(finding: Finding, sessions: Stage) -> Stage:
    at = finding.created_at
    if finding.state == Finding.State.INVALID:
        return Stage("verdict", "done", f"withdrawn: {finding.reason}", at, finding.state_since)
    if finding.state == Finding.State.CANDIDATE:
        detail = f"{_NOT_YET[FindingState.CANDIDATE]}: {finding.headline}"
        return Stage("verdict", "running", detail, sessions.ended_at or at)
    return Stage("verdict", "done", finding.headline, sessions.ended_at or at, at)


def _judgeable(rows: SeriesRows) -> bool:
    wanted = [session for session in rows.sessions if session.state != SessionState.CANCELED]
    return settings.VIRTUAL_VERDICTS or not all(session.machine.virtual for session in wanted)


def report_stage(rows: SeriesRows, verdict: Stage) -> Stage:
    finding = rows.finding
    if finding is None and verdict.state == "done":
        return Stage("report", "done", "nothing was judged, so nothing is told", verdict.ended_at, verdict.ended_at)
    report: Report | None = getattr(finding, "report", None)
    if report is not None:
        return _written(report)
    if finding is None or rows.series.state == SeriesState.SUPERSEDED:
        return Stage("report", "waiting", _superseded(rows))
    return _not_written(finding)


def _not_written(finding: Finding) -> Stage:
    if finding.kind == Finding.Kind.INCONCLUSIVE:
        return Stage("report", "done", "nothing inconclusive is mailed", finding.created_at, finding.created_at)
    if finding.state in _NOT_YET:
        return Stage("report", "running", _NOT_YET[FindingState(finding.state)], finding.state_since)
    if finding.state != Finding.State.CONFIRMED:
        label = FindingState(finding.state).label
        return Stage("report", "done", f"not told; the finding is {label}", finding.created_at, finding.state_since)
    return Stage("report", "running", "being written", finding.created_at)


def _written(report: Report) -> Stage:
    at, since = report.created_at, report.state_since
    if report.state == ReportState.REFUSED:
        return Stage("report", "failed", report.reason, at, since)
    if report.state == ReportState.REJECTED:
        return Stage("report", "done", f"{ReportState.REJECTED.label}: {report.reason}", at, since)
    if report.state == ReportState.DRAFT:
        return Stage("report", "waiting", report.reason or ReportState.DRAFT.label, at, held=True)
    delivery: Delivery | None = getattr(report, "delivery", None)
    return _mailed(delivery, at) if delivery else Stage("report", "running", ReportState(report.state).label, at)


def _mailed(delivery: Delivery, at: datetime) -> Stage:
    if delivery.state == DeliveryState.SENT:
        return Stage("report", "done", f"sent as <{delivery.message_id}>", at, delivery.sent_at)
    if delivery.state == DeliveryState.FAILED:
        return Stage("report", "failed", delivery.reason, at, delivery.state_since)
    if delivery.state == DeliveryState.QUEUED and not settings.MAIL_ENABLED:
        return Stage("report", "waiting", "mail is switched off at this site", at, held=True)
    return Stage("report", "running", delivery.reason or DeliveryState(delivery.state).label, at)


def _superseded(rows: SeriesRows) -> str:
    if rows.series.state != SeriesState.SUPERSEDED:
        return ""
    newer = rows.series.superseded_by
    return f"superseded by version {newer.numeral}" if newer else rows.series.reason or "superseded"

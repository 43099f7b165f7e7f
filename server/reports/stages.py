"""The six stages on the way from a mail to a reply, each told from the rows alone."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

from django.conf import settings
from django.db.models import Count, Q, prefetch_related_objects

from server.builds.blame import blame
from server.builds.models import Build, BuildState
from server.core.models import Transition
from server.core.rows.together import read_together
from server.detection.models import Finding, FindingState
from server.lab.models import Attempt, Boot, BootState, Canary, Machine, Session, SessionState
from server.reports.models import Delivery, DeliveryState, Report, ReportState
from server.reports.stop_switch import current_stop
from server.sources.models import Patch, Series, SeriesState

# (config, toolchain): what a kernel is built with.
Recipe = tuple[int, int]
# What stages tell of machines and builds. Logs and whole configurations of hundreds of series would fill the memory.
_OF_MACHINE = ("name", "clock", "virtual", "uarch__name", "config__name", "toolchain__name")
_OF_CANARY = tuple(f"machine__{name}" for name in ("uarch", "config", "toolchain"))
_OF_BUILD = (
    *("tree_sha", "state", "state_since", "reason", "created_at", "build_id", "given_up"),
    *("config__name", "toolchain__name"),
)
_OF_SESSION = (
    *("series", "state", "state_since", "reason", "created_at"),
    *(f"machine__{name}" for name in _OF_MACHINE),
    *(f"{build}__{recipe}" for build in ("base_build", "patched_build") for recipe in ("config", "toolchain")),
)


@dataclass(frozen=True)
class SeriesRows:
    """One series with everything that hangs on it. `builds` and `sessions` are empty until they are planned."""

    series: Series
    patches: int
    machines: tuple[Machine, ...]
    recipes: tuple[Recipe, ...]
    builds: dict[tuple[str, Recipe], Build]
    sessions: tuple[Session, ...]
    boots: dict[int, dict[str, int]]
    working: dict[tuple[str, int], str]
    entered: dict[str, datetime]
    finding: Finding | None
    # Of what was told of the finding and withdrawn since.
    retraction: Report | None = None
    # A person holds back what would leave.
    stopped: bool = False


@dataclass
class _Bulk:
    """Rows of all asked series, by the ids that join them."""

    patches: dict[int, int] = field(default_factory=dict)
    machines: list[Machine] = field(default_factory=list)
    of_canary: list[Machine] = field(default_factory=list)
    builds: dict[str, list[Build]] = field(default_factory=lambda: defaultdict(list))
    known: dict[int, Build] = field(default_factory=dict)
    sessions: dict[int, list[Session]] = field(default_factory=lambda: defaultdict(list))
    boots: dict[int, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    working: dict[tuple[str, int], str] = field(default_factory=dict)
    entered: dict[int, dict[str, datetime]] = field(default_factory=lambda: defaultdict(dict))
    findings: Mapping[int, Finding] = field(default_factory=dict)
    retractions: dict[int, Report] = field(default_factory=dict)
    stopped: bool = False


def rows_of_many(series: Sequence[Series], findings: Mapping[int, Finding] | None = None) -> list[SeriesRows]:
    """The rows of each series, in the order given; `findings` are those by series, with their reports, where known."""
    if not series:
        return []
    prefetch_related_objects(list(series), "base", "head", "mailing_list", "superseded_by")
    bulk = _load(series, findings)
    return [_rows_of(one, bulk) for one in series]


def _load(series: Sequence[Series], findings: Mapping[int, Finding] | None) -> _Bulk:
    ids = [one.pk for one in series]
    bulk = _Bulk()
    trees = {revision.tree_sha for one in series for revision in (one.base, one.head) if revision}
    for build in Build.objects.filter(tree_sha__in=trees).select_related("config", "toolchain").only(*_OF_BUILD):
        bulk.builds[build.tree_sha].append(build)
        bulk.known[build.pk] = build
    sessions = Session.objects.filter(series__in=ids).select_related(
        "machine__uarch", "machine__config", "machine__toolchain", "base_build", "patched_build"
    )
    for session in sessions.only(*_OF_SESSION).order_by("machine__uarch__name", "machine__name"):
        assert session.series_id is not None
        bulk.sessions[session.series_id].append(session)
    if not all(pk in bulk.sessions for pk in ids):
        good = Machine.objects.filter(enabled=True, health=Machine.Health.GOOD)
        bulk.machines = list(good.select_related("uarch", "config", "toolchain").only(*_OF_MACHINE))
        if any(one.canary for one in series):
            bulk.of_canary = [row.machine for row in Canary.objects.select_related(*_OF_CANARY)]
    _load_work(ids, bulk)
    bulk.findings = _findings(ids) if findings is None else findings
    bulk.retractions = _retractions(bulk.findings.values())
    bulk.stopped = any(map(_is_queued, bulk.findings.values())) and current_stop() is not None
    return bulk


def _is_queued(finding: Finding) -> bool:
    delivery = getattr(getattr(finding, "report", None), "delivery", None)
    return delivery is not None and delivery.state == DeliveryState.QUEUED


def _retractions(findings: Iterable[Finding]) -> dict[int, Report]:
    """By finding; asked for where one was withdrawn."""
    gone = [finding.pk for finding in findings if finding.state == FindingState.INVALID]
    if not gone:
        return {}
    rows = Report.objects.filter(finding__in=gone, kind=Report.Kind.RETRACTION).select_related("delivery").defer("body")
    return {row.finding_id: row for row in rows if row.finding_id is not None}


def _findings(ids: list[int]) -> dict[int, Finding]:
    rows = Finding.objects.filter(series__in=ids).select_related("report__delivery")
    rows = rows.defer(*Finding.LONG, "report__body")
    return {finding.series_id: finding for finding in rows if finding.series_id is not None}


def _load_work(ids: list[int], bulk: _Bulk) -> None:
    """One query."""
    attempts = Attempt.objects.filter(
        Q(session__series__in=ids) | Q(build__in=list(bulk.known)), state__in=Attempt.ACTIVE
    ).order_by("id")
    boots = Boot.objects.filter(session__series__in=ids).order_by().values_list("session", "state")
    steps = Transition.objects.filter(subject="series", subject_id__in=ids).order_by("id")
    patches, counts, working, entered = read_together(
        Patch.objects.filter(series__in=ids).order_by().values_list("series").annotate(count=Count("id")),
        boots.annotate(count=Count("id")),
        attempts.values_list("session_id", "build_id", "progress", "state"),
        steps.values_list("subject_id", "after", "at"),
    )
    bulk.patches = dict(patches)
    for subject_id, after, at in entered:
        bulk.entered[subject_id].setdefault(after, at)
    for session_id, state, count in counts:
        bulk.boots[session_id][state] = count
    for session_id, build_id, progress, state in working:
        text = progress or Attempt.State(state).label
        bulk.working[("session", session_id) if session_id else ("build", build_id)] = text


def _rows_of(series: Series, bulk: _Bulk) -> SeriesRows:
    sessions = tuple(bulk.sessions[series.pk])
    # Sessions of a series are all planned at once: while there are none, the good machines are the plan.
    planned = bulk.of_canary if series.canary else bulk.machines
    machines = tuple(session.machine for session in sessions) or tuple(planned)
    recipes = tuple(dict.fromkeys((machine.config_id, machine.toolchain_id) for machine in machines))
    if sessions:
        used = [build for session in sessions for build in (session.base_build, session.patched_build)]
        recipes = tuple(dict.fromkeys((build.config_id, build.toolchain_id) for build in used))
    builds: dict[tuple[str, Recipe], Build] = {}
    for arm, revision in ((Boot.Arm.BASE, series.base), (Boot.Arm.PATCHED, series.head)):
        for build in bulk.builds[revision.tree_sha] if revision else []:
            recipe = (build.config_id, build.toolchain_id)
            if recipe in recipes:
                # The newest: older ones of this configuration were retired, or had other lines.
                builds.setdefault((str(arm), recipe), build)
    for session in sessions:
        for arm, pk in ((Boot.Arm.BASE, session.base_build_id), (Boot.Arm.PATCHED, session.patched_build_id)):
            if used_one := bulk.known.get(pk):
                builds[str(arm), (used_one.config_id, used_one.toolchain_id)] = used_one
    return SeriesRows(
        series=series,
        patches=bulk.patches.get(series.pk, 0),
        machines=machines,
        recipes=recipes,
        builds=builds,
        sessions=sessions,
        boots=bulk.boots,
        working=bulk.working,
        entered=bulk.entered[series.pk],
        finding=(finding := bulk.findings.get(series.pk)),
        retraction=bulk.retractions.get(finding.pk) if finding else None,
        stopped=bulk.stopped,
    )


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
        if finding is not None and finding.state == FindingState.INVALID and report.state == ReportState.SENT:
            return _taken_back(rows.retraction, report, stopped=rows.stopped)
        return _written(report, stopped=rows.stopped)
    if finding is None or rows.series.state == SeriesState.SUPERSEDED:
        return Stage("report", "waiting", _superseded(rows))
    return _not_written(finding)


def _not_written(finding: Finding) -> Stage:
    if finding.kind == Finding.Kind.INCONCLUSIVE and not finding.canary:
        return Stage("report", "done", "nothing inconclusive is mailed", finding.created_at, finding.created_at)
    if finding.state in _NOT_YET:
        return Stage("report", "running", _NOT_YET[FindingState(finding.state)], finding.state_since)
    if finding.state != Finding.State.CONFIRMED:
        label = FindingState(finding.state).label
        return Stage("report", "done", f"not told; the finding is {label}", finding.created_at, finding.state_since)
    return Stage("report", "running", "being written", finding.created_at)


def _taken_back(retraction: Report | None, report: Report, *, stopped: bool) -> Stage:
    """What was told does not hold: the mail that says so is what is waited for."""
    if retraction is None:
        return Stage(
            "report", "running", "told, and withdrawn since: the retraction is being written", report.created_at
        )
    stage = _written(retraction, stopped=stopped)
    return replace(stage, detail=f"told, and withdrawn since; retraction: {stage.detail}")


def _written(report: Report, *, stopped: bool) -> Stage:
    at, since = report.created_at, report.state_since
    if report.state == ReportState.REFUSED:
        return Stage("report", "failed", report.reason, at, since)
    if report.state == ReportState.REJECTED:
        return Stage("report", "done", f"{ReportState.REJECTED.label}: {report.reason}", at, since)
    if report.state in (ReportState.DRAFT, ReportState.HELD):
        return Stage("report", "waiting", report.reason or ReportState(report.state).label, at, held=True)
    delivery: Delivery | None = getattr(report, "delivery", None)
    if delivery is None:
        return Stage("report", "running", ReportState(report.state).label, at)
    return _mailed(delivery, at, stopped=stopped)


def _mailed(delivery: Delivery, at: datetime, *, stopped: bool) -> Stage:
    if delivery.state == DeliveryState.SENT:
        return Stage("report", "done", f"sent as <{delivery.message_id}>", at, delivery.sent_at)
    if delivery.state == DeliveryState.FAILED:
        return Stage("report", "failed", delivery.reason, at, delivery.state_since)
    if delivery.state == DeliveryState.QUEUED and not settings.MAIL_ENABLED:
        return Stage("report", "waiting", "mail is switched off at this site", at, held=True)
    if delivery.state == DeliveryState.QUEUED and stopped:
        return Stage("report", "waiting", "a person has stopped all that leaves this site", at, held=True)
    return Stage("report", "running", delivery.reason or DeliveryState(delivery.state).label, at)


def _superseded(rows: SeriesRows) -> str:
    if rows.series.state != SeriesState.SUPERSEDED:
        return ""
    newer = rows.series.superseded_by
    return f"superseded by version {newer.numeral}" if newer else rows.series.reason or "superseded"

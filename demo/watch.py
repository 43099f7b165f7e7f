"""What the running service says about the demo's series, read from its rows, and what is printed at the end."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from demo.checks import Check
from demo.postings import Posting
from demo.progress import clock_text
from demo.sink import Stored
from demo.world import TREE_NAME
from server.detection.findings.table import Component, finding_vector
from server.detection.models import Comparison, Finding
from server.lab.models import Attempt, Trial
from server.lab.trials.question import spent
from server.reports.progress import series_progress
from server.reports.stages import Stage
from server.sources.models import Branch, MailingList, Message, Series, Tree

ENDS = frozenset({"done", "failed", "held", "superseded"})


@dataclass(frozen=True)
class StageView:
    """One stage of a series; `seconds` is how long it took by the service's own clock, once it is over."""

    name: str
    state: str
    detail: str
    seconds: float | None


@dataclass(frozen=True)
class View:
    """`pulse` changes whenever anything has moved; `trouble` is what stands in the watchers' way, if anything."""

    series_id: int | None
    trace: str
    state: str
    reason: str
    stages: tuple[StageView, ...]
    trouble: str
    pulse: str

    @property
    def ended(self) -> bool:
        return self.state in ENDS


def branch_head(branch: str) -> str:
    """The commit the service has seen on a branch of the demo's tree; empty before it has fetched it."""
    row = Branch.objects.filter(tree__name=TREE_NAME, name=branch).select_related("head").first()
    return row.head.sha if row and row.head else ""


def trouble() -> str:
    """Why the tree or the archive cannot be read, as the service says."""
    rows: list[Tree | MailingList] = [*Tree.objects.all(), *MailingList.objects.all()]
    return "; ".join(f"{row.name}: {row.last_error}" for row in rows if row.failing_since)


def find_series(posting: Posting) -> Series | None:
    """The series a posting became; with a cover letter that is late it is known by its first patch for a while."""
    ids = [posting.root_message_id, posting.message_id(1)]
    return Series.objects.filter(root_message_id__in=ids).order_by("pk").first()


def has_arrived(posting: Posting) -> bool:
    """Whether all patches of a posting are with the service."""
    series = find_series(posting)
    return series is not None and series.state != Series.State.INCOMPLETE


def look(posting: Posting) -> View:
    series = find_series(posting)
    if series is None:
        count = Message.objects.count()
        return View(None, "", "waiting", f"{count} mails read", (), trouble(), f"{count}")
    progress = series_progress(series)
    stages = tuple(_stage(stage, series.created_at) for stage in progress.stages)
    working = Attempt.objects.filter(state__in=Attempt.ACTIVE).order_by("id")
    # A heartbeat counts as movement: a kernel compiles for minutes on a busy host without saying more.
    signs = list(working.values_list("key", "progress", "lease_until"))
    pulse = repr((progress.state, stages, signs))
    return View(series.pk, series.trace, progress.state, progress.reason, stages, trouble(), pulse)


def _stage(stage: Stage, posted: datetime) -> StageView:
    seconds = None
    if stage.started_at and stage.ended_at:
        # A kernel may have been built for an earlier series: that took none of this one's time.
        seconds = max((stage.ended_at - max(stage.started_at, posted)).total_seconds(), 0.0)
    return StageView(stage.name, stage.state, _detail(stage), seconds)


def _detail(stage: Stage) -> str:
    """The stage's own words, and while it runs those of the first build or machine that is at work."""
    if stage.state != "running":
        return stage.detail
    builds = [f"{item.arm} kernel {item.detail}" for item in stage.builds if item.state in {"dispatched", "running"}]
    sessions = [f"{item.machine} {item.detail}" for item in stage.sessions if item.state == "running"]
    return "; ".join(part for part in (stage.detail, *builds, *sessions) if part)


def verdict_table(series: Series) -> list[str]:
    """One line for each microarchitecture; ratios are patched / base of the case that moved most."""
    finding = getattr(series, "finding", None)
    if finding is None:
        return ["no verdict"]
    rows = [("microarchitecture", "verdict", "what was seen")]
    rows += [(part.uarch, part.verdict, _seen(part)) for part in finding_vector(finding)]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    lines = [f"  {row[0]:{widths[0]}}  {row[1]:{widths[1]}}  {row[2]}".rstrip() for row in rows]
    return [finding.headline, "", *lines, "", "  Measured on virtual machines: not evidence."]


def _seen(part: Component) -> str:
    cell = part.cell
    if part.verdict in {"regressed", "improved", "split"} and cell is not None and cell.ratio is not None:
        return f"{cell.case.name} {cell.ratio:.2f}x ({_means(cell)})"
    if part.mde is not None:
        return f"would have seen {100 * part.mde:.1f} %" + (f"; {part.reason}" if part.reason else "")
    return part.reason


def _means(cell: Comparison) -> str:
    if cell.base_mean is None or cell.patched_mean is None:
        return "no means"
    boots = cell.base_boots + cell.patched_boots
    means = f"{cell.base_mean:.0f} -> {cell.patched_mean:.0f} {cell.metric.unit}"
    return f"{means}, {boots} boots on {cell.session.machine.name}"


def search_lines(series: Series) -> list[str]:
    """What was found to have made it, each step of the way there, and what all its trials cost."""
    finding = Finding.objects.filter(series=series).select_related("culprit").first()
    if finding is None:
        return []
    lines = [f"  culprit: {finding.culprit.subject}" if finding.culprit else f"  no culprit: {finding.reason}"]
    for search in finding.bisections.select_related("machine").order_by("pk"):
        lines.append(f"  {search.machine.name}: {search.state}; {search.reason}".rstrip("; "))
        for step in search.steps.order_by("number"):
            ratio = f" {step.ratio:.2f}x" if step.ratio is not None else ""
            where = "" if step.index is None else f" patch {step.index}"
            lines.append(f"    {step.kind}{where}: {step.answer}{ratio} {step.reason}".rstrip())
    cost = spent(list(_trials(series, finding)))
    return [*lines, f"  {cost.sessions} sessions, {cost.boots} boots, {clock_text(cost.seconds)} of machine time"]


def _trials(series: Series, finding: Finding) -> Iterable[int]:
    yield from Trial.objects.filter(series=series).values_list("pk", flat=True)
    yield from Trial.objects.filter(bisection_steps__bisection__finding=finding).values_list("pk", flat=True)
    yield from Trial.objects.filter(asked_by__finding=finding).values_list("pk", flat=True)


def mail_lines(mails: Iterable[Stored]) -> list[str]:
    return [line for mail in mails for line in (*(f"  | {line}" for line in mail.text.splitlines()), "")]


def check_lines(checks: Sequence[Check]) -> list[str]:
    return [f"  {'ok    ' if one.ok else 'FAILED'} {one.name}: {one.detail}" for one in checks]


def time_lines(titles: Mapping[str, str], seconds: Mapping[str, float], total: float) -> list[str]:
    lines = [f"  {clock_text(seconds[name]):>6}  {title}" for name, title in titles.items() if name in seconds]
    return [*lines, f"  {clock_text(total):>6}  in all"]

"""What the running service says about the demo's series: read from its rows, never written."""

from dataclasses import dataclass
from datetime import datetime

from demo.lab import TREE_NAME
from demo.postings import Posting
from server.lab.models import Attempt
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

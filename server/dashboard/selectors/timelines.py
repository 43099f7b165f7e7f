"""What the pages of branches and of their timelines tell."""

from dataclasses import dataclass

from server.dashboard.selectors.findings import FindingRow, finding_rows
from server.dashboard.selectors.paging import Paged, paged
from server.dashboard.selectors.verdicts import with_verdicts
from server.dashboard.sparks import Spark, spark
from server.detection.heads.selectors import (
    PointView,
    TimelineView,
    branch_findings,
    points_of,
    timeline_views,
    timelines_of,
)
from server.detection.models import ChangePoint, Timeline
from server.lab.models import Machine
from server.sources.models import Branch

_MOST_FINDINGS = 50
_MOST_POINTS = 500
_LISTED = 60
# A branch has one for each case and metric.
_TIMELINES_PER_PAGE = 100


@dataclass(frozen=True, slots=True)
class BranchPage:
    tree: str
    name: str
    machine: str
    uarch: str
    virtual: bool
    machines: tuple[str, ...]
    findings: tuple[FindingRow, ...]
    timelines: Paged[TimelineView]


@dataclass(frozen=True, slots=True)
class TimelinePage:
    """`points` are the newest, newest first; the drawing holds more of them."""

    tree: str
    branch: str
    virtual: bool
    view: TimelineView
    spark: Spark | None
    points: tuple[PointView, ...]


def branch_page(tree: str, name: str, machine: str, number: str, *, virtual: bool) -> BranchPage | None:
    """The branch with a page of its timelines on one machine: the one that is named, or else the first."""
    branch = Branch.objects.select_related("tree").filter(tree__name=tree, name=name).first()
    if branch is None:
        return None
    machines = list(
        Machine.objects.select_related("uarch").filter(timelines__branch=branch).distinct().order_by("name")
    )
    shown = next((one for one in machines if one.name == machine), machines[0] if machines else None)
    found = branch_findings(branch).prefetch_related(with_verdicts()).select_related("branch__tree")
    if not virtual:
        found = found.filter(virtual=False)
    timelines = timelines_of(branch, shown) if shown else Timeline.objects.none()
    return BranchPage(
        tree=tree,
        name=name,
        machine=shown.name if shown else "",
        uarch=shown.uarch.name if shown else "",
        virtual=shown.virtual if shown else False,
        machines=tuple(one.name for one in machines),
        findings=finding_rows(list(found[:_MOST_FINDINGS])),
        timelines=paged(
            timelines.only("pk"),
            number,
            lambda rows: timeline_views(branch, [row.pk for row in rows]),
            _TIMELINES_PER_PAGE,
        ),
    )


def timeline_page(timeline_id: int) -> TimelinePage | None:
    timeline = Timeline.objects.select_related("branch__tree", "machine").defer("watch").filter(pk=timeline_id).first()
    if timeline is None:
        return None
    (view,) = timeline_views(timeline.branch, [timeline.pk])
    points = points_of(timeline.pk, _MOST_POINTS)
    # What was taken back is listed with that word, and drawn as a change no more.
    steps = [one.place for one in view.change_points if one.state != ChangePoint.State.WITHDRAWN]
    return TimelinePage(
        tree=timeline.branch.tree.name,
        branch=timeline.branch.name,
        virtual=timeline.machine.virtual,
        view=view,
        spark=spark([point.place for point in points], [point.ratio for point in points], steps),
        points=points[::-1][:_LISTED],
    )

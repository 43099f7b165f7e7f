"""Pages of a tree, of a branch over time, and of one timeline."""

from collections.abc import Mapping
from dataclasses import dataclass

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from server.core import clock
from server.dashboard.finding_pages import FindingRow, finding_rows
from server.dashboard.rows.charts import Spark, spark
from server.dashboard.rows.figures import Paged, paged
from server.dashboard.rows.machine_facts import Fact
from server.dashboard.rows.verdicts import with_verdicts
from server.dashboard.rows.watchers import (
    MOVE_PARTS,
    BranchRow,
    MoveRow,
    TagRow,
    WantedRow,
    Watcher,
    branch_rows,
    move_rows,
    tag_rows,
    wanted_rows,
    watcher,
)
from server.detection.branches.fleet import (
    PointView,
    TimelineFigures,
    branch_findings,
    points_of,
    timeline_views,
    timelines_of_branch,
)
from server.detection.models import ChangePoint, Timeline
from server.lab.models import Machine
from server.sources.models import Branch, HeadMove, Tag, Tree, WantedRevision

_PER_TABLE = 25


@dataclass(frozen=True, slots=True)
class TreeFacts:
    watcher: Watcher
    rebasing: bool
    policy: tuple[Fact, ...]
    lists: tuple[str, ...]
    branches: Paged[BranchRow]
    moves: Paged[MoveRow]
    wanted: Paged[WantedRow]
    tags: Paged[TagRow]


def tree_facts(name: str, pages: Mapping[str, str]) -> TreeFacts | None:
    """`pages` has the number of the page of each table, by its name: branches, moves, wanted, tags."""
    tree = Tree.objects.filter(name=name).first()
    if tree is None:
        return None
    branches = Branch.objects.filter(tree=tree).select_related("head", "tree").order_by("deleted_at", "name")
    moved = HeadMove.objects.filter(branch__tree=tree).select_related(*MOVE_PARTS).order_by("-id")
    wanted = WantedRevision.objects.filter(tree=tree).select_related("revision__tree").order_by("-id")
    tags = Tag.objects.filter(tree=tree).select_related("revision__tree").order_by("-id")
    return TreeFacts(
        watcher=watcher("tree", tree, clock.now()),
        rebasing=tree.rebasing,
        policy=_policy(tree),
        lists=tuple(tree.lists.values_list("name", flat=True)),
        branches=paged(branches, pages.get("branches", "1"), branch_rows, _PER_TABLE),
        moves=paged(moved, pages.get("moves", "1"), move_rows, _PER_TABLE),
        wanted=paged(wanted, pages.get("wanted", "1"), wanted_rows, _PER_TABLE),
        tags=paged(tags, pages.get("tags", "1"), tag_rows, _PER_TABLE),
    )


def _policy(tree: Tree) -> tuple[Fact, ...]:
    per_day = "all" if tree.heads_per_day is None else f"at most {tree.heads_per_day} in 24 hours"
    told = (
        ("branches", tree.branch_patterns),
        ("new heads measured", [per_day]),
        ("tags measured", tree.tag_patterns),
        ("merges measured", [f"by {address}" for address in tree.merges_by]),
        ("microarchitectures", tree.uarchs or ["all"]),
        ("benchmarks", ["default set", *tree.benchmarks]),
        ("priority", [str(tree.priority)]),
        ("patches marked", tree.subject_tags),
        ("patches sent to", tree.addresses),
        ("patches of paths", tree.paths),
        ("poll interval", [f"{tree.poll_seconds} s"]),
    )
    return tuple(Fact(title, ", ".join(values)) for title, values in told if values)


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
    timelines: Paged[TimelineFigures]


@dataclass(frozen=True, slots=True)
class TimelinePage:
    """`points` are the newest, newest first; the drawing holds more of them."""

    tree: str
    branch: str
    virtual: bool
    view: TimelineFigures
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
    timelines = timelines_of_branch(branch, shown) if shown else Timeline.objects.none()
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


@require_safe
def branch(request: HttpRequest, name: str, branch_name: str) -> HttpResponse:
    machine = request.GET.get("machine", "")
    number = request.GET.get("timelines", "1")
    page = branch_page(name, branch_name.replace("\0", ""), machine, number, virtual=settings.VIRTUAL_VERDICTS)
    if page is None:
        raise Http404(f"The tree {name} has no branch {branch_name}.")
    return render(request, "dashboard/branch.html", {"now": clock.now(), "page": page})


@require_safe
def timeline(request: HttpRequest, timeline_id: int) -> HttpResponse:
    page = timeline_page(timeline_id)
    if page is None:
        raise Http404(f"There is no timeline {timeline_id}.")
    return render(request, "dashboard/timeline.html", {"now": clock.now(), "page": page, "line": page.view})

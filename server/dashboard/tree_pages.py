"""Pages of a tree, of a branch over time, and of one timeline."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import OuterRef, Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from server.core import clock
from server.dashboard.frame.kept_pages import kept
from server.dashboard.pictures.written import heat_csv, problems_of, wants_csv
from server.dashboard.rows.figures import Paged, paged
from server.dashboard.rows.machine_facts import Fact
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
from server.dashboard.trees.courses import course_of, timeline_page
from server.dashboard.trees.found import FoundLine, Lately, findings_named, found_lines
from server.dashboard.trees.heat import BranchHeat, branch_heat
from server.dashboard.trees.measured import LATELY, ChosenBranch, MeasuredBranch, chosen, measured_branches
from server.dashboard.trees.newest_heads import HeadLine, head_lines
from server.dashboard.trees.steps import LevelChange, level_changes
from server.detection.findings.filters import CLAIMS, OPEN
from server.detection.models import Finding
from server.sources.models import Branch, HeadMove, Tag, Tree, WantedRevision

_PER_TABLE = 25
_MOST_FINDINGS = 50
_MOST_COUNTED = 200
# Long tables of a tree, of which a page shows the one that is asked for.
TABLES = ("moves", "wanted", "tags")


@dataclass(frozen=True, slots=True)
class BranchLine:
    """A branch of a tree: where it stands, its newest judged head, and how many claims about it are open."""

    row: BranchRow
    measured: MeasuredBranch | None
    worse: int
    better: int


@dataclass(frozen=True, slots=True)
class TreeTables:
    """What is chosen to be measured and what moved; all but the one that was asked for are None."""

    shown: str
    moves: Paged[MoveRow] | None = None
    wanted: Paged[WantedRow] | None = None
    tags: Paged[TagRow] | None = None


@dataclass(frozen=True, slots=True)
class TreeFacts:
    watcher: Watcher
    rebasing: bool
    policy: tuple[Fact, ...]
    lists: tuple[str, ...]
    choice: ChosenBranch
    heat: BranchHeat | None
    findings: tuple[FoundLine, ...]
    lately: Lately | None
    branches: Paged[BranchLine]
    tables: TreeTables


def tree_facts(name: str, asked: Mapping[str, str]) -> TreeFacts | None:
    """`asked` has the branch to show, and the number of the page of a table by its name."""
    tree = Tree.objects.filter(name=name).first()
    if tree is None:
        return None
    measured = measured_branches(branch__tree=tree.pk)
    choice = chosen(measured, {"tree": name, "branch": asked.get("branch", "")})
    since = clock.now() - LATELY
    found = Q(state__in=OPEN, kind__in=CLAIMS) | Q(created_at__gte=since)
    lines = found_lines(findings_named(Finding.objects.filter(pk__in=_newest(tree, found))))
    late = [line for line in lines if line.created_at >= since]
    return TreeFacts(
        watcher=watcher("tree", tree, clock.now()),
        rebasing=tree.rebasing,
        policy=_policy(tree),
        lists=tuple(tree.lists.values_list("name", flat=True)),
        choice=choice,
        heat=branch_heat(choice.shown) if choice.shown is not None else None,
        findings=_open(lines),
        lately=Lately.of(late, choice.shown, is_cut=len(late) >= _MOST_FINDINGS) if choice.shown is not None else None,
        branches=paged(_branches(tree), asked.get("branches", "1"), lambda rows: _lines(rows, measured), _PER_TABLE),
        tables=_tables(tree, asked),
    )


def _newest(tree: Tree, wanted: Q) -> list[int]:
    """Ids of the newest findings of the tree. By branch: so an index gives the newest of each, and no more."""
    own = Finding.objects.filter(wanted, branch=OuterRef("pk")).order_by("-pk").values("pk")[:_MOST_FINDINGS]
    rows = Branch.objects.filter(tree=tree).order_by().values_list(ArraySubquery(own), flat=True)
    return sorted((pk for of_branch in rows for pk in of_branch), reverse=True)[:_MOST_FINDINGS]


def _open(lines: Sequence[FoundLine]) -> tuple[FoundLine, ...]:
    return tuple(line for line in lines if line.state in OPEN and line.kind in CLAIMS)


def _branches(tree: Tree) -> "QuerySet[Branch]":
    """With the open findings that each has, as `worse` and `better`: their ids, of very many the first."""
    open_ = Finding.objects.filter(branch=OuterRef("pk"), state__in=OPEN).order_by()

    def counted(*kinds: str) -> ArraySubquery:
        return ArraySubquery(open_.filter(kind__in=kinds).values("pk")[:_MOST_COUNTED])

    branches = Branch.objects.filter(tree=tree).select_related("head", "tree").order_by("deleted_at", "name")
    worse = counted(Finding.Kind.REGRESSED, Finding.Kind.SPLIT)
    return branches.annotate(worse=worse, better=counted(Finding.Kind.IMPROVED))


def _lines(branches: Sequence[Branch], measured: Sequence[MeasuredBranch]) -> list[BranchLine]:
    known = {one.id: one for one in measured}
    counts = [(len(getattr(branch, "worse", ())), len(getattr(branch, "better", ()))) for branch in branches]
    return [
        BranchLine(row, known.get(branch.pk), worse, better)
        for branch, row, (worse, better) in zip(branches, branch_rows(branches), counts, strict=True)
    ]


def _tables(tree: Tree, asked: Mapping[str, str]) -> TreeTables:
    shown = next((name for name in TABLES if name in asked), "")
    number = asked.get(shown, "1")
    if shown == "moves":
        moved = HeadMove.objects.filter(branch__tree=tree).select_related(*MOVE_PARTS).order_by("-id")
        return TreeTables(shown, moves=paged(moved, number, move_rows, _PER_TABLE))
    if shown == "wanted":
        wanted = WantedRevision.objects.filter(tree=tree).select_related("revision__tree").order_by("-id")
        return TreeTables(shown, wanted=paged(wanted, number, wanted_rows, _PER_TABLE))
    if shown == "tags":
        tags = Tag.objects.filter(tree=tree).select_related("revision__tree").order_by("-id")
        return TreeTables(shown, tags=paged(tags, number, tag_rows, _PER_TABLE))
    return TreeTables(shown)


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


@dataclass(frozen=True, slots=True)
class BranchPage:
    """`benchmark` narrows the heat map to its cases; `problem` says which name in the address is unknown."""

    tree: str
    name: str
    branch: Branch
    measured: MeasuredBranch | None
    benchmark: str
    problem: str
    heat: BranchHeat | None
    lately: Lately | None
    findings: tuple[FoundLine, ...]
    is_cut: bool
    heads: tuple[HeadLine, ...]
    changes: tuple[LevelChange, ...]


def branch_page(tree: str, name: str, benchmark: str = "") -> BranchPage | None:
    """Twelve queries at most."""
    branch = Branch.objects.select_related("tree").filter(tree__name=tree, name=name).first()
    if branch is None:
        return None
    measured = next(iter(measured_branches(branch=branch.pk)), None)
    heat = branch_heat(measured, benchmark) if measured is not None else None
    unknown = bool(benchmark and heat is not None and benchmark not in heat.benchmarks)
    lines = found_lines(findings_named(Finding.objects.filter(branch=branch))[:_MOST_FINDINGS])
    late = [line for line in lines if line.created_at >= clock.now() - LATELY]
    return BranchPage(
        tree=tree,
        name=name,
        branch=branch,
        measured=measured,
        benchmark="" if unknown else benchmark,
        problem=f"No benchmark {benchmark} was measured on this branch." if unknown else "",
        heat=heat,
        lately=Lately.of(late, measured, is_cut=len(late) >= _MOST_FINDINGS) if measured is not None else None,
        findings=lines,
        is_cut=len(lines) >= _MOST_FINDINGS,
        heads=head_lines(branch),
        changes=level_changes(measured) if measured is not None else (),
    )


@require_safe
@kept
def tree(request: HttpRequest, name: str) -> HttpResponse:
    facts = tree_facts(name, request.GET.dict())
    if facts is None:
        raise Http404(f"There is no tree {name}.")
    if wants_csv(request.GET):
        return heat_csv(facts.heat.picture if facts.heat else None, f"heat-{name}")
    problems = problems_of(request.GET, ("branch", "branches", *TABLES))
    return render(request, "dashboard/tree.html", {"now": clock.now(), "tree": facts, "problems": problems})


@require_safe
@kept
def branch(request: HttpRequest, name: str, branch_name: str) -> HttpResponse:
    page = branch_page(name, branch_name.replace("\0", ""), request.GET.get("benchmark", ""))
    if page is None:
        raise Http404(f"The tree {name} has no branch {branch_name}.")
    if wants_csv(request.GET):
        return heat_csv(page.heat.picture if page.heat else None, f"heat-{page.tree}-{page.branch.pk}")
    problems = problems_of(request.GET, ("benchmark",))
    return render(request, "dashboard/branch.html", {"now": clock.now(), "page": page, "problems": problems})


@require_safe
@kept
def timeline(request: HttpRequest, timeline_id: int) -> HttpResponse:
    page = timeline_page(timeline_id, request.GET.get("page", "1"))
    if page is None:
        raise Http404(f"There is no timeline {timeline_id}.")
    return render(request, "dashboard/timeline.html", {"now": clock.now(), "page": page})


@require_safe
@kept
def timeline_course(_request: HttpRequest, timeline_id: int) -> HttpResponse:
    """What the picture of the page is drawn from: thousands of points, of use to its script alone."""
    course = course_of(timeline_id)
    if course is None:
        raise Http404(f"There is no timeline {timeline_id}.")
    body = json.dumps(course.data, separators=(",", ":"), ensure_ascii=False)
    return HttpResponse(body, content_type="application/json")

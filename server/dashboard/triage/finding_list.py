"""The list of findings: filters, counts, saved views, and for who may decide the rows to act on."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db.models import CharField, Count, Q, QuerySet, Value
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from server.core import clock
from server.dashboard.frame.kept_pages import kept
from server.dashboard.rows.figures import paged
from server.dashboard.rows.verdicts import FindingBrief, finding_brief, with_verdicts
from server.dashboard.trees.found import FoundCommit, commits_of, with_commits
from server.dashboard.triage import question as asking
from server.dashboard.triage.question import FindingQuestion, known_names, question_of
from server.detection.branches.release import Why
from server.detection.findings.filters import is_open
from server.detection.findings.vector import SPLIT
from server.detection.lifecycle.triage import TRIAGE, triagers, with_seen
from server.detection.models import Finding, FindingVerdict, Verdict

_PARTS = ("series", "branch__tree", "assignee", "culprit")
_MOST_VIEWS = 12
_MOST_COUNTED = 100


@dataclass(frozen=True, slots=True)
class TriageRow:
    """`seen` is the step of its life up to which it is shown: an act tells it back."""

    brief: FindingBrief
    about: str
    author: str
    series_id: int | None
    tree: str
    branch: str
    state_since: datetime
    assignee: str
    seen: int
    commits: tuple[FoundCommit, ...]
    also: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ListLink:
    """A link of the page: a saved view, or a state with how many are in it."""

    label: str
    address: str
    count: int | str | None
    is_current: bool
    title: str = ""


def _counted(findings: "QuerySet[Finding]") -> Counter[str]:
    """How many there are in each state; of very many only so many are looked at."""
    ones = [
        findings.filter(state=state).order_by().values_list("state", "pk")[:_MOST_COUNTED]
        for state in Finding.State.values
    ]
    open_ = Value(asking.OPEN_WORD, output_field=CharField())
    ones.append(findings.filter(is_open()).order_by().values_list(open_, "pk")[:_MOST_COUNTED])
    return Counter(state for state, _pk in ones[0].union(*ones[1:], all=True))


@require_safe
@kept
def findings(request: HttpRequest) -> HttpResponse:
    people = dict(triagers().values_list("username", "pk"))
    me = request.user.get_username() if request.user.is_authenticated else ""
    may_triage = request.user.has_perm(TRIAGE)
    given = request.GET.copy()
    if given.keys() <= {"page"}:
        # Who asks for nothing is here to see what waits.
        given["state"] = asking.OPEN_WORD
    question = question_of(given, known_names(people, tells_people=may_triage), me)
    query = question.narrowed(_all())
    counts = _counted(query)
    query = question.in_state(query)
    page = paged(query.none() if question.problems else query, request.GET.get("page", "1"), triage_rows)
    context = {
        "now": clock.now(),
        "page": page,
        "asked": {name: question.asked.get(name, "") for name in ("state", *asking.FILTERS)},
        "narrows": question.narrows,
        "problems": question.problems,
        "choices": _choices(question),
        "states": _states(question, {} if question.problems else counts),
        "views": _views(question),
        "has_more": any(question.asked.get(name) for name in _FOLDED),
        "may_triage": may_triage,
        "reasons_why": [why.value for why in Why],
        "people": [name for name in people if may_triage or name == question.asked.get("assignee")],
        "given": dict.fromkeys(("reason", "why", "until", "assignee"), ""),
        "me": me,
        "here": request.get_full_path(),
    }
    return render(request, "dashboard/findings.html", context)


# Asked for less often: they stand under "more".
_FOLDED = ("uarch", "improved_on", "author", "path", "commit", "since", "until")


def _all() -> QuerySet[Finding]:
    """Newest first; those of virtual machines only where the site shows them."""
    query = with_commits(with_seen(Finding.shown().select_related(*_PARTS))).prefetch_related(with_verdicts())
    query = query.defer(*Finding.LONG, "series__trailers").order_by("-id")
    return query if settings.VIRTUAL_VERDICTS else query.filter(virtual=False)


def triage_rows(findings: Sequence[Finding]) -> list[TriageRow]:
    """Of findings that were read `with_seen`."""
    rows = [_row(finding) for finding in findings]
    made = {row.brief.id: {one.sha for one in row.commits} for row in rows}
    return [
        replace(row, also=tuple(pk for pk, shas in made.items() if pk != row.brief.id and shas & made[row.brief.id]))
        for row in rows
    ]


def _row(finding: Finding) -> TriageRow:
    series, branch = finding.series, finding.branch
    return TriageRow(
        brief=finding_brief(finding),
        about=series.subject if series else str(branch),
        author=(series.author_name or series.author_address) if series else "",
        series_id=finding.series_id,
        tree=branch.tree.name if branch else "",
        branch=branch.name if branch else "",
        state_since=finding.state_since,
        assignee=finding.assignee.get_username() if finding.assignee else "",
        seen=getattr(finding, "seen", 0),
        commits=_commits(finding),
    )


def _commits(finding: Finding) -> tuple[FoundCommit, ...]:
    """Of a single patch, or where a person named it, nothing was searched."""
    made = finding.culprit
    return commits_of(finding) or ((FoundCommit(made.sha, made.subject, ()),) if made is not None else ())


def _choices(question: FindingQuestion) -> dict[str, Any]:
    """What the selects of the form offer."""
    return {
        "kinds": asking.KINDS.items(),
        "states": asking.STATES.items(),
        "uarchs": list(question.names.uarchs),
        "trees": list(question.names.trees),
        "benchmarks": list(question.names.benchmarks),
    }


def _address(asked: Mapping[str, str]) -> str:
    return f"?{urlencode(asked)}" if asked else "?"


def _states(question: FindingQuestion, counts: Mapping[str, int]) -> list[ListLink]:
    """Of what else is asked for: how many are in each state."""
    others = {name: value for name, value in question.asked.items() if name != "state"}
    of_states = [number for state, number in counts.items() if state != asking.OPEN_WORD]
    whole = _told(sum(of_states), of_states)
    found = [ListLink("all", _address({"state": "", **others}), whole, not question.state)]
    for state, label in asking.STATES.items():
        number = counts.get(state, 0)
        if number or state in (asking.OPEN_WORD, question.state):
            address = _address({**others, "state": state})
            found.append(ListLink(state, address, _told(number, (number,)), question.state == state, label))
    return found


def _told(number: int, parts: Iterable[int]) -> int | str:
    return f"{number}+" if max(parts, default=0) >= _MOST_COUNTED else number


def _views(question: FindingQuestion) -> list[ListLink]:
    """Questions that are asked every day, as links."""
    regressed = {"state": asking.OPEN_WORD, "kind": Finding.Kind.REGRESSED.value}
    every, worse, unassigned = _waiting()
    wanted: list[tuple[str, dict[str, str], int | None]] = [
        ("open", {"state": asking.OPEN_WORD}, every),
        ("open regressions", regressed, worse),
    ]
    if question.me:
        wanted.append(("mine", {"state": asking.OPEN_WORD, "assignee": asking.ME}, None))
    wanted.append(("unassigned regressions", {**regressed, "assignee": asking.NOBODY}, unassigned))
    for uarch, number in _regressed_on()[:_MOST_VIEWS]:
        wanted.append((f"regressed on {uarch}", {"state": asking.OPEN_WORD, "regressed_on": uarch}, number))
    return [ListLink(label, _address(asked), number, asked == question.asked) for label, asked, number in wanted]


def _waiting() -> tuple[int, int, int]:
    """How many findings are open, of them how many regressed somewhere, and how many of these nobody has. One query."""
    rows = Finding.shown().filter(is_open())
    if not settings.VIRTUAL_VERDICTS:
        rows = rows.filter(virtual=False)
    worse = Q(kind__in=(Finding.Kind.REGRESSED, Finding.Kind.SPLIT))
    counted = rows.order_by().aggregate(
        every=Count("pk"), worse=Count("pk", filter=worse), nobody=Count("pk", filter=worse & Q(assignee=None))
    )
    return counted["every"], counted["worse"], counted["nobody"]


def _regressed_on() -> list[tuple[str, int]]:
    """Microarchitectures on which open findings regressed, with how many; most first."""
    told = FindingVerdict.objects.filter(
        verdict__in=(Verdict.REGRESSED, SPLIT), finding__in=Finding.shown().filter(is_open())
    )
    if not settings.VIRTUAL_VERDICTS:
        told = told.filter(finding__virtual=False)
    rows = told.order_by().values_list("uarch__name").annotate(number=Count("pk"))
    return sorted(rows, key=lambda row: (-row[1], row[0]))

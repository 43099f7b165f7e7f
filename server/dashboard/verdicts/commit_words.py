"""Which commit made it, as the searches on several machines tell: each thing once."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from django.db.models import F

from server.detection.bisection.conclusion import REST, what_is_left
from server.detection.bisection.walk import cell_in_full
from server.detection.findings.checks import Name
from server.detection.findings.vector import as_speed
from server.detection.models import Bisection, Finding
from server.detection.models.finding import BisectionState, BisectionStep
from server.sources.models import Revision

_LONGEST_WHY = 160


@dataclass(frozen=True, slots=True)
class CommitWords:
    """`alone` is what the culprit itself does where it was measured against its parent, `lines` all else that is known;
    `narrower`: the culprit is one of the commits that the finding's own verdicts are of.
    """

    alone: str = ""
    lines: tuple[str, ...] = ()
    narrower: bool = False


@dataclass
class _Search:
    """The last round of a bisection: its steps that have an answer, by kind."""

    bisection: Bisection
    steps: dict[str, list[BisectionStep]] = field(default_factory=lambda: defaultdict(list))

    @property
    def uarch(self) -> str:
        return self.bisection.machine.uarch.name

    def last(self, kind: str) -> BisectionStep | None:
        return self.steps[kind][-1] if self.steps[kind] else None


_NAMES = ("culprit", "target__metric", "target__case__benchmark", "target__core_type", "machine__uarch")


def commit_words(finding: Finding) -> CommitWords:
    """Three queries at most."""
    searches = {row.pk: _Search(row) for row in finding.bisections.select_related(*_NAMES).order_by("machine__name")}
    if not searches:
        return CommitWords(lines=_as_checked(finding))
    steps = BisectionStep.objects.filter(bisection__in=searches, round=F("bisection__round")).exclude(answer="")
    for step in steps.order_by("number"):
        searches[step.bisection_id].steps[step.kind].append(step)
    agreed = [one for one in searches.values() if one.bisection.culprit_id and _is_agreed(one.bisection, finding)]
    ranges = [one for one in searches.values() if _is_range(one.bisection)]
    others = [one for one in searches.values() if one not in agreed and one not in ranges]
    apart = [one for one in others if one.bisection.state == BisectionState.FOUND]
    lines = [*_commits(apart), *_ranges(ranges), *_reasons([one for one in others if one not in apart])]
    narrower = any(len(one.bisection.revisions) > 2 for one in agreed)  # noqa: PLR2004 (both ends)
    return CommitWords(_alone(agreed), tuple(lines), narrower)


def _as_checked(finding: Finding) -> tuple[str, ...]:
    """Of a single commit nothing is searched: the checks say so, the page names it."""
    said = [str(row.get("text", "")) for row in finding.checks if row.get("name") == Name.BISECTION]
    told = list(dict.fromkeys(text for text in said if text))
    if finding.culprit is not None:
        told = [rest.lstrip(":; ") or text for text in told for rest in [text.partition(finding.culprit.subject)[2]]]
    return tuple(told)


def _is_agreed(bisection: Bisection, finding: Finding) -> bool:
    return bisection.state == BisectionState.FOUND and bisection.culprit_id == finding.culprit_id


def _is_range(bisection: Bisection) -> bool:
    return bisection.state == BisectionState.FOUND and bisection.culprit_id is None


def _alone(searches: Sequence[_Search]) -> str:
    if not searches:
        return ""
    sizes = ", ".join(f"{one.uarch} {_size(one)}" for one in searches)
    remarks = defaultdict(list)
    for one in searches:
        remarks[_without(one)].append(one.uarch)
    told = [f"{', '.join(where)}: {what}" for what, where in remarks.items()] if len(remarks) > 1 else list(remarks)
    count = f"{len(searches)} cell{'' if len(searches) == 1 else 's'} bisected"
    return f"{sizes} ({'; '.join([count, *told])})"


def _commits(searches: Sequence[_Search]) -> list[str]:
    """Where microarchitectures have each their own."""
    made: dict[int | None, list[_Search]] = defaultdict(list)
    for one in searches:
        made[one.bisection.culprit_id].append(one)
    named = [(own[0].bisection.culprit, own) for own in made.values()]
    return [
        f"{row.sha[:12]} {row.subject[:_LONGEST_WHY]} alone: {_alone(own)}" for row, own in named if row is not None
    ]


def _size(search: _Search) -> str:
    step = search.last(BisectionStep.Kind.CULPRIT)
    target = search.bisection.target
    size = as_speed(step.ratio, target.metric.better) if step is not None and step.ratio is not None else "changed"
    return f"{size} in {cell_in_full(target)}"


def _without(search: _Search) -> str:
    step = search.last(BisectionStep.Kind.REVERT)
    if step is None:
        return "not measured without it"
    if step.answer == BisectionStep.Answer.GOOD:
        left = as_speed(step.ratio, search.bisection.target.metric.better) if step.ratio else ""
        return "without it the change is gone" if _is_gone(search.bisection, step) else f"without it {left} is left"
    if step.answer == BisectionStep.Answer.BAD:
        return "without it the change is still there"
    return f"without it: {step.reason[:_LONGEST_WHY]}"


def _is_gone(bisection: Bisection, step: BisectionStep) -> bool:
    """As the search itself says it: less than a quarter is left."""
    return what_is_left(bisection, step.ratio) <= REST


def _ranges(searches: Sequence[_Search]) -> list[str]:
    """Searches that stopped at the same commits are told once."""
    found: dict[tuple[str, str, int, int, str], list[str]] = defaultdict(list)
    for one in searches:
        row = one.bisection
        first, last = row.revisions[row.low + 1], row.revisions[row.high]
        found[first, last, row.high - row.low, len(row.revisions) - 1, _why_not(one)].append(one.uarch)
    subjects = _subjects(sha for first, last, *_ in found for sha in (first, last))
    lines = []
    for (first, last, left, total, why), where in found.items():
        narrowed = "not narrowed" if left == total else f"narrowed from {total} commits to {left}"
        ends = f"one of {left}, {_named(first, subjects)} to {_named(last, subjects)}"
        lines.append((", ".join(where), f"{narrowed}: {ends}{why}"))
    return [f"{where}: {text}" if len(lines) > 1 else text for where, text in lines]


def _why_not(search: _Search) -> str:
    """What kept the commits between from being told apart."""
    row = search.bisection
    why: dict[str, int] = defaultdict(int)
    for step in search.steps[BisectionStep.Kind.MIDDLE]:
        between = step.index is not None and row.low < step.index < row.high
        if between and step.answer in (BisectionStep.Answer.SKIPPED, BisectionStep.Answer.UNSURE):
            why[step.reason[:_LONGEST_WHY]] += 1
    return "".join(f"; {count} between: {reason}" for reason, count in why.items())


def _subjects(shas: Iterable[str]) -> Mapping[str, str]:
    return dict(Revision.objects.filter(sha__in=set(shas)).values_list("sha", "subject"))


def _named(sha: str, subjects: Mapping[str, str]) -> str:
    return f"{sha[:12]} {subjects.get(sha, '')[:_LONGEST_WHY]}".strip()


def _reasons(searches: Sequence[_Search]) -> list[str]:
    said = dict.fromkeys(f"{one.uarch}: {one.bisection.reason}" for one in searches if one.bisection.reason)
    return list(said)

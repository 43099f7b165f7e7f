"""Findings as pages of trees and the home page tell them: what made it, where it got slower and where faster."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Self

from django.conf import settings
from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import OuterRef, Prefetch, QuerySet
from django.db.models.functions import JSONObject

from server.dashboard.pictures.axis import speed, told
from server.dashboard.trees.measured import LATELY, MeasuredBranch
from server.detection.findings.vector import Coverage
from server.detection.models import Bisection, BisectionState, Finding, FindingVerdict, Verdict
from server.detection.models.finding import COVERAGE

_ORDER = ("regressed", "split", "improved", "inconclusive", "unchanged")


@dataclass(frozen=True, slots=True)
class Found:
    """One microarchitecture of a finding, with its largest change: in words as `said`, as the logarithm of a speed
    in `size` (below 0 is slower), and the cell that shows it in `of`. Without one, `seen` says how much was told.
    """

    uarch: str
    verdict: str
    said: str
    of: str
    size: float
    reason: str
    seen: str


@dataclass(frozen=True, slots=True)
class FoundCommit:
    """A commit that made it on these microarchitectures, as their searches found."""

    sha: str
    subject: str
    uarchs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FoundLine:
    """A finding of a series or of a branch.

    `title` is what made it: the series or the culprit; or the range where it lies, of which no commit is to blame yet.
    """

    id: int
    kind: str
    state: str
    state_label: str
    reason: str
    headline: str
    virtual: bool
    created_at: datetime
    state_since: datetime
    series_id: int | None
    author: str
    title: str
    tree: str
    branch: str
    branch_id: int | None
    culprit: str
    before: str
    after: str
    chips: tuple[Found, ...]
    commits: tuple[FoundCommit, ...] = ()
    # Findings beside it in which the same commit did the same.
    also: tuple[int, ...] = ()

    def made_by(self, uarch: str) -> str:
        """The commit that made it there; of one that is not known, what no other finding has."""
        own = next((one.sha for one in self.commits if uarch in one.uarchs), "")
        return own or self.culprit or f"finding {self.id}"

    def slower_by(self) -> set[tuple[str, str]]:
        """What got slower where, by the commit that made it."""
        return {(uarch, self.made_by(uarch)) for uarch in _uarchs(self, Verdict.REGRESSED)}

    @property
    def is_suspected(self) -> bool:
        return self.state == Finding.State.CANDIDATE

    @property
    def worst(self) -> float:
        """The largest loss, below 0."""
        return min((chip.size for chip in self.chips), default=0.0)


def found_lines(findings: Iterable[Finding]) -> tuple[FoundLine, ...]:
    """For findings read by `findings_named`."""
    return tuple(_line(finding) for finding in findings)


# A line names a little of rows that have dozens of columns.
_OF_FINDING = (
    *("kind", "state", "reason", "headline", "virtual", "created_at", "state_since"),
    *(f"series__{name}" for name in ("subject", "author_name", "author_address")),
    *("branch__name", "branch__tree__name", "before__sha", "after__sha"),
    *(f"culprit__{name}" for name in ("sha", "subject", "author")),
)
_OF_VERDICT = (
    *("finding", "verdict", "reason", *COVERAGE),
    *("uarch__name", "comparison__ratio", "comparison__metric__name", "comparison__metric__better"),
    *("comparison__case__name", "comparison__case__benchmark__name"),
)


def findings_named(rows: "QuerySet[Finding] | None" = None) -> "QuerySet[Finding]":
    """Findings with what a line names of them, newest first; those of virtual machines where the site judges them."""
    parts = ("uarch", "comparison__metric", "comparison__case__benchmark")
    named = FindingVerdict.objects.select_related(*parts).only(*_OF_VERDICT)
    verdicts = Prefetch("verdicts", queryset=named)
    every = Finding.shown() if rows is None else rows
    if not settings.VIRTUAL_VERDICTS:
        every = every.filter(virtual=False)
    rows = every.select_related("series", "branch__tree", "culprit", "before", "after").prefetch_related(verdicts)
    return with_commits(rows).only(*_OF_FINDING).order_by("-id")


def with_commits(findings: "QuerySet[Finding]") -> "QuerySet[Finding]":
    """With what their searches found, for `commits_of`: no query more."""
    searches = Bisection.objects.filter(finding=OuterRef("pk"), state=BisectionState.FOUND, culprit__isnull=False)
    told = JSONObject(sha="culprit__sha", subject="culprit__subject", uarch="machine__uarch__name")
    return findings.annotate(found_commits=ArraySubquery(searches.order_by("pk").values(told=told)))


def _line(finding: Finding) -> FoundLine:
    series, branch, made = finding.series, finding.branch, finding.culprit
    commits = commits_of(finding)
    title = series.subject if series is not None else made.subject if made is not None else _between(finding, commits)
    author = (series.author_name or series.author_address) if series is not None else made.author if made else ""
    return FoundLine(
        id=finding.pk,
        kind=finding.kind,
        state=finding.state,
        state_label=Finding.State(finding.state).label,
        reason=finding.reason,
        headline=finding.headline,
        virtual=finding.virtual,
        created_at=finding.created_at,
        state_since=finding.state_since,
        series_id=finding.series_id,
        author=author,
        title=title,
        tree=branch.tree.name if branch is not None else "",
        branch=branch.name if branch is not None else "",
        branch_id=finding.branch_id,
        culprit=finding.culprit.sha if finding.culprit is not None else "",
        before=finding.before.sha if finding.before is not None else "",
        after=finding.after.sha if finding.after is not None else "",
        chips=tuple(sorted((_found(row) for row in finding.verdicts.all()), key=_attention)),
        commits=commits,
    )


def commits_of(finding: Finding) -> tuple[FoundCommit, ...]:
    found: dict[str, tuple[str, dict[str, None]]] = {}
    for row in getattr(finding, "found_commits", ()):
        found.setdefault(row["sha"], (row["subject"], {}))[1][row["uarch"]] = None
    return tuple(FoundCommit(sha, subject, tuple(uarchs)) for sha, (subject, uarchs) in found.items())


def _between(finding: Finding, commits: Sequence[FoundCommit]) -> str:
    if commits:
        return " and ".join(f"{one.subject} ({', '.join(one.uarchs)})" for one in commits)
    if finding.before is None or finding.after is None:
        return finding.headline
    return f"A commit after {finding.before.sha[:12]}, {finding.after.sha[:12]} at the latest"


def _found(row: FindingVerdict) -> Found:
    cell = row.comparison
    changed = cell is not None and cell.ratio is not None and row.verdict not in _QUIET
    return Found(
        uarch=row.uarch.name,
        verdict=row.verdict,
        said=told(cell.ratio, cell.metric.better) if changed and cell and cell.ratio else "",
        of=f"{cell.case.benchmark.name}/{cell.case.name} {cell.metric.name}" if changed and cell else "",
        size=(speed(cell.ratio, cell.metric.better) or 0.0) if changed and cell and cell.ratio else 0.0,
        reason=row.reason,
        seen=Coverage.of(row).brief if row.verdict in _QUIET else "",
    )


_QUIET = (Verdict.UNCHANGED, Verdict.INCONCLUSIVE)


def _attention(chip: Found) -> tuple[int, str]:
    return _ORDER.index(chip.verdict), chip.uarch


@dataclass(frozen=True, slots=True)
class Lately:
    """What the last days brought to a branch. The counts are of findings, by microarchitecture; the most first.

    `is_cut`: only the newest were looked at, there may be more.
    """

    days: int
    heads: int
    slower: tuple[FoundLine, ...]
    faster: tuple[FoundLine, ...]
    suspected: tuple[FoundLine, ...]
    slower_on: tuple[tuple[str, int], ...]
    faster_on: tuple[tuple[str, int], ...]
    is_cut: bool

    @classmethod
    def of(cls, lines: Sequence[FoundLine], shown: MeasuredBranch, *, is_cut: bool) -> Self:
        """Of claims that stand: what was withdrawn or replaced does not count, what is suspected counts apart."""
        own = [line for line in lines if line.branch_id == shown.id]
        standing = [line for line in own if line.state in Finding.STANDING]
        slower = once([line for line in standing if _uarchs(line, Verdict.REGRESSED)])
        told = {line.id for line in slower}.union(*(line.also for line in slower))
        faster = [line for line in standing if line.id not in told and _uarchs(line, Verdict.IMPROVED)]
        return cls(
            days=LATELY.days,
            heads=shown.lately,
            slower=tuple(slower),
            faster=tuple(faster),
            suspected=tuple(line for line in own if line.is_suspected),
            slower_on=_counted(slower, Verdict.REGRESSED),
            faster_on=_counted(standing, Verdict.IMPROVED),
            is_cut=is_cut,
        )


def once(lines: Sequence[FoundLine]) -> list[FoundLine]:
    """Of findings in which one commit made the same microarchitectures slower, that which names it best, with the
    others beside it: timelines may tell of one change in two places.
    """
    kept: list[FoundLine] = []
    for line in sorted(lines, key=lambda one: (not one.culprit, -len(one.slower_by()), one.id)):
        same = next((n for n, one in enumerate(kept) if line.slower_by() <= one.slower_by()), None)
        if same is None:
            kept.append(line)
        else:
            kept[same] = replace(kept[same], also=(*kept[same].also, line.id))
    return sorted(kept, key=lambda one: -one.id)


def with_same(lines: Sequence[FoundLine]) -> list[FoundLine]:
    """All of them, each with those in which one of its commits did something too."""
    made = {line.id: {one.sha for one in line.commits} | {line.culprit} - {""} for line in lines}
    return [
        replace(line, also=tuple(pk for pk, shas in made.items() if pk != line.id and shas & made[line.id]))
        for line in lines
    ]


def _uarchs(line: FoundLine, verdict: Verdict) -> list[str]:
    return [chip.uarch for chip in line.chips if chip.verdict in (verdict, "split")]


def _counted(lines: Iterable[FoundLine], verdict: Verdict) -> tuple[tuple[str, int], ...]:
    return tuple(Counter(uarch for line in lines for uarch in _uarchs(line, verdict)).most_common())

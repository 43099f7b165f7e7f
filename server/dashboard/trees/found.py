"""Findings as pages of trees and the home page tell them: what made it, where it got slower and where faster."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from django.conf import settings
from django.db.models import Prefetch, QuerySet

from server.dashboard.pictures.axis import speed, told
from server.dashboard.trees.measured import LATELY, MeasuredBranch
from server.detection.findings.vector import Coverage
from server.detection.models import Finding, FindingVerdict, Verdict

CLAIMS = (Finding.Kind.REGRESSED, Finding.Kind.SPLIT, Finding.Kind.IMPROVED)
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


def findings_named(rows: "QuerySet[Finding] | None" = None) -> "QuerySet[Finding]":
    """Findings with what a line names of them, newest first; those of virtual machines where the site judges them."""
    parts = ("uarch", "comparison__metric", "comparison__case__benchmark")
    verdicts = Prefetch("verdicts", queryset=FindingVerdict.objects.select_related(*parts))
    every = Finding.objects.all() if rows is None else rows
    if not settings.VIRTUAL_VERDICTS:
        every = every.filter(virtual=False)
    named = every.select_related("series", "branch__tree", "culprit", "before", "after").prefetch_related(verdicts)
    return named.defer(*Finding.LONG, "series__trailers").order_by("-id")


def _line(finding: Finding) -> FoundLine:
    series, branch, made = finding.series, finding.branch, finding.culprit
    title = series.subject if series is not None else made.subject if made is not None else _between(finding)
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
    )


def _between(finding: Finding) -> str:
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
        slower = [line for line in standing if _uarchs(line, Verdict.REGRESSED)]
        faster = [line for line in standing if line not in slower and _uarchs(line, Verdict.IMPROVED)]
        return cls(
            days=LATELY.days,
            heads=shown.lately,
            slower=tuple(slower),
            faster=tuple(faster),
            suspected=tuple(line for line in own if line.is_suspected),
            slower_on=_counted(standing, Verdict.REGRESSED),
            faster_on=_counted(standing, Verdict.IMPROVED),
            is_cut=is_cut,
        )


def _uarchs(line: FoundLine, verdict: Verdict) -> list[str]:
    return [chip.uarch for chip in line.chips if chip.verdict in (verdict, "split")]


def _counted(lines: Iterable[FoundLine], verdict: Verdict) -> tuple[tuple[str, int], ...]:
    return tuple(Counter(uarch for line in lines for uarch in _uarchs(line, verdict)).most_common())

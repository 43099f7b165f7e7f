"""Findings as rows of a list: a word, a headline and a chip for each microarchitecture."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Prefetch

from server.detection.models import Finding, FindingVerdict


@dataclass(frozen=True, slots=True)
class Chip:
    uarch: str
    verdict: str
    reason: str
    ratio: float | None
    mde: float | None


@dataclass(frozen=True, slots=True)
class FindingBrief:
    id: int
    kind: str
    state: str
    state_label: str
    reason: str
    headline: str
    virtual: bool
    identical: bool
    chips: tuple[Chip, ...]
    created_at: datetime


# Verdicts that ask for a reader's attention stand first.
_ORDER = ("regressed", "split", "improved", "inconclusive", "unchanged")


def with_verdicts() -> "Prefetch[str]":
    """What a query of findings must fetch so that `finding_brief` asks the database nothing more."""
    return Prefetch("verdicts", queryset=FindingVerdict.objects.select_related("uarch", "comparison"))


def finding_brief(finding: Finding) -> FindingBrief:
    return FindingBrief(
        id=finding.pk,
        kind=finding.kind,
        state=finding.state,
        state_label=Finding.State(finding.state).label,
        reason=finding.reason,
        headline=finding.headline,
        virtual=finding.virtual,
        identical=finding.identical,
        chips=chips(finding.verdicts.all()),
        created_at=finding.created_at,
    )


def chips(verdicts: Iterable[FindingVerdict]) -> tuple[Chip, ...]:
    made = (
        Chip(
            uarch=row.uarch.name,
            verdict=row.verdict,
            reason=row.reason,
            ratio=row.comparison.ratio if row.comparison else None,
            mde=row.mde,
        )
        for row in verdicts
    )
    return tuple(sorted(made, key=lambda chip: (_ORDER.index(chip.verdict), chip.uarch)))


def briefs_by_series(series_ids: Sequence[int]) -> dict[int, FindingBrief]:
    """The findings of these series, in two queries."""
    findings = Finding.objects.filter(series_id__in=series_ids).defer(*Finding.LONG).prefetch_related(with_verdicts())
    return {finding.series_id: finding_brief(finding) for finding in findings if finding.series_id is not None}

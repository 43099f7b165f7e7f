"""Findings of the versions of one series: what became of each cell, and how a newer one replaces the older."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q, QuerySet

from server.core.reasons import NONE, Because, Reason
from server.detection.findings.checks import stop_trials
from server.detection.findings.result import remade
from server.detection.findings.vector import heard
from server.detection.models import Comparison, Finding, Verdict
from server.detection.models.finding import CHANGES
from server.sources.models import Series, SeriesState

# What was told to people, or decided by them, stays until there is a newer word to put in its place.
_STANDING = (Finding.State.REPORTED, Finding.State.ACCEPTED, Finding.State.FIXED)
_OPEN = (Finding.State.CANDIDATE, Finding.State.CONFIRMED, Finding.State.BISECTING)
# One that is being bisected may have been told before: its search ends first, and shows where it was.
_UNTOLD = (Finding.State.CANDIDATE, Finding.State.CONFIRMED)
# Versions of one series; a longer chain is a loop or a joke.
_MOST_VERSIONS = 100


def link_to_previous(finding: Finding) -> None:
    """Set `previous` to the finding of the newest older version that has one."""
    if finding.series is None or finding.previous_id is not None:
        return
    older = next(_findings_before(finding.series), None)
    if older is not None:
        finding.previous = older
        Finding.objects.filter(pk=finding.pk).update(previous=older)


def supersede_older(finding: Finding) -> int:
    """End the findings of all older versions: this one stands in their place. Returns how many."""
    if finding.series is None:
        return 0
    reason = Because.REPLACED(f"version {finding.series.numeral} is judged: finding {finding.pk}")
    return sum(_supersede(older, reason) for older in _findings_before(finding.series))


def supersede_of_series(*, since: datetime | None = None) -> int:
    """For the sweep: findings of series that a newer version replaced, before anybody was told; returns how many.

    Only where one of the two became so `since` then, if it is given: what says nothing stays confirmed for ever.
    """
    untold = Finding.objects.filter(state__in=_UNTOLD, series__state=SeriesState.SUPERSEDED)
    rows = _moved(untold, "series", since).select_related("series")
    return sum(_supersede(finding, finding.series.said if finding.series else NONE) for finding in rows)


def awaiting_replacement(most: int, *, since: datetime | None = None) -> list[Finding]:
    """Confirmed findings of newer versions beside which an older version's finding still stands."""
    judged = Finding.objects.filter(state__in=Finding.STANDING, previous__state__in=[*_STANDING, *_OPEN])
    return list(_moved(judged, "previous", since).select_related("series").order_by("pk")[:most])


def _moved(rows: QuerySet[Finding], other: str, since: datetime | None) -> QuerySet[Finding]:
    """Those of which the finding or its `other` came into its state since then: each by an index of its own."""
    if since is None:
        return rows
    itself = Finding.objects.filter(state_since__gte=since).order_by().values("pk")
    beside = Finding.objects.filter(**{f"{other}__state_since__gte": since}).order_by().values("pk")
    return rows.filter(pk__in=itself.union(beside))


def _supersede(finding: Finding, reason: Reason) -> bool:
    if Finding.State.SUPERSEDED not in Finding.NEXT.get(finding.state, frozenset()):
        return False
    if not finding.advance(
        Finding.State.SUPERSEDED, reason or Because.REPLACED("a newer version has replaced the series")
    ):
        return False
    stop_trials(finding, f"finding {finding.pk} is superseded")
    return True


def _findings_before(series: Series) -> Iterator[Finding]:
    """Those of the older versions, the newest first."""
    seen, row = {series.pk}, [series.pk]
    for _ in range(_MOST_VERSIONS):
        older = (
            Series.objects.filter(Q(superseded_by__in=row)).exclude(pk__in=seen).order_by("-version", "-minor", "-pk")
        )
        row = list(older.values_list("pk", flat=True))
        if not row:
            return
        seen.update(row)
        yield from Finding.objects.filter(series__in=row).select_related("series").order_by("-series__version", "-pk")


MENDED = "mended"
STILL = "still regressed"
NEW = "new"
BETTER = "better"
WORSE = "worse"
SAME = "same"
UNTOLD = "cannot be compared"

_Cell = tuple[str, str, int, int, str]


@dataclass(frozen=True)
class VersionRow:
    """One cell of one machine. Ratios are patched / base, each against its own version's base."""

    uarch: str
    machine: str
    name: str
    before_verdict: str
    before_ratio: float | None
    now_verdict: str
    now_ratio: float | None
    what: str


@dataclass(frozen=True)
class VersionComparison:
    previous: Finding
    sentence: str
    rows: tuple[VersionRow, ...]


def compare_versions(finding: Finding) -> VersionComparison | None:
    """The finding beside that of the version before; None where there is none.

    Rows are cells in which something changed in either version, those of one microarchitecture together.
    """
    previous = finding.previous
    if previous is None:
        return None
    then, now = _cells(previous), _cells(finding)
    rows = [_row(key, then.get(key), now.get(key)) for key in sorted(then.keys() | now.keys())]
    told = tuple(row for row in rows if {row.before_verdict, row.now_verdict} & set(CHANGES))
    return VersionComparison(previous, _sentence(finding, previous, told), told)


def _cells(finding: Finding) -> dict[_Cell, Comparison]:
    result = remade(finding)
    rows: Iterable[Comparison] = heard(result.comparisons, finding.checks) if result else ()
    return {_key(row): row for row in rows}


def _key(row: Comparison) -> _Cell:
    machine = row.session.machine
    return machine.uarch.name, machine.name, row.case_id, row.metric_id, row.core_type.name


def _row(key: _Cell, then: Comparison | None, now: Comparison | None) -> VersionRow:
    either = now or then
    assert either is not None
    return VersionRow(
        uarch=key[0],
        machine=key[1],
        name=f"{either.metric.name} of {either.case.name}",
        before_verdict=then.verdict if then else "",
        before_ratio=then.ratio if then else None,
        now_verdict=now.verdict if now else "",
        now_ratio=now.ratio if now else None,
        what=_what(then, now),
    )


def _what(then: Comparison | None, now: Comparison | None) -> str:
    """Each version stands against its own base; what one of them did not judge cannot be compared."""
    if then is None or now is None or Verdict.INCONCLUSIVE in (then.verdict, now.verdict):
        return UNTOLD
    if then.verdict == Verdict.REGRESSED:
        return _still(then, now) if now.verdict == Verdict.REGRESSED else MENDED
    if now.verdict == Verdict.REGRESSED:
        return NEW
    if then.verdict == now.verdict:
        return SAME
    return BETTER if now.verdict == Verdict.IMPROVED else WORSE


def _still(then: Comparison, now: Comparison) -> str:
    """Intervals that do not meet tell more from less."""
    lower_is_better = now.metric.better == now.metric.Better.LOWER
    if now.ratio_low is None or now.ratio_high is None or then.ratio_low is None or then.ratio_high is None:
        return STILL
    if now.ratio_high < then.ratio_low:
        return BETTER if lower_is_better else WORSE
    if now.ratio_low > then.ratio_high:
        return WORSE if lower_is_better else BETTER
    return STILL


def _sentence(finding: Finding, previous: Finding, rows: tuple[VersionRow, ...]) -> str:
    bases = " (each on a base of its own)" if _base(finding) != _base(previous) else ""
    versions = f"Version {_version(finding)} against version {_version(previous)}{bases}"
    if not rows:
        return f"{versions}: neither changes anything that both were measured for."
    parts = []
    for what in (NEW, WORSE, STILL, BETTER, MENDED, SAME, UNTOLD):
        uarchs = dict.fromkeys(row.uarch for row in rows if row.what == what)
        if uarchs:
            parts.append(f"{what} on {', '.join(uarchs)} ({sum(row.what == what for row in rows)})")
    return f"{versions}: {'; '.join(parts)}."


def _base(finding: Finding) -> int | None:
    return finding.series.base_id if finding.series else None


def _version(finding: Finding) -> str:
    return finding.series.numeral if finding.series else "1"

"""One version of a series against the version before: what became of each cell that either of them judged."""

from collections.abc import Iterable
from dataclasses import dataclass

from server.detection.lifecycle.hearing import heard
from server.detection.models import Comparison, Finding, Verdict
from server.detection.models.comparisons import CHANGES
from server.detection.results import remade

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

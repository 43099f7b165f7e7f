"""What the service says about the simulated branch, held against what really happened."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.fleet_history_truth import Change, Truth
from server.detection.models import ChangePoint, Finding, FindingState, MachineQuestion
from server.sources.models import Branch

_TOLD = (FindingState.CONFIRMED, FindingState.BISECTING, FindingState.REPORTED, FindingState.FIXED)
_CHANGED = (Finding.Kind.REGRESSED, Finding.Kind.IMPROVED, Finding.Kind.SPLIT)
# A step of maintenance that is told as code is told at most so many places away from it.
_NEAR = 6
# What is told stands left in the last column of a table whose columns stand right.
_WIDE = 200


@dataclass(frozen=True)
class Told:
    """A confirmed finding: its revision lies after place `low`, at the latest at `high`; one of one place is named."""

    finding: Finding
    low: int
    high: int
    named: bool


@dataclass(frozen=True)
class Score:
    """Confirmed findings by the change they tell of; `false` tell of none, some of these of a maintenance step.

    `wide` say where a change is, but leave revisions that were measured between; nothing is found by them.
    """

    found: Mapping[int, Sequence[Told]]
    wide: Sequence[Told]
    false: Sequence[Told]
    maintenance: Sequence[Told]

    @property
    def exact(self) -> int:
        return sum(any(told.named for told in some) for some in self.found.values())

    @property
    def again(self) -> int:
        return sum(len(some) - 1 for some in self.found.values())


def score(truth: Truth, branch: Branch, places: Mapping[str, int]) -> Score:
    """`places` are those of the branch's commits."""
    rows = Finding.objects.filter(branch=branch, state__in=_TOLD, kind__in=_CHANGED).order_by("pk")
    told = [_told(row, places) for row in rows.select_related("before", "after", "culprit")]
    found: dict[int, list[Told]] = {}
    missing = truth.unwanted | truth.unbuildable
    false, wide = [], []
    for one in told:
        change = next((change for change in truth.changes if one.low < change.place <= one.high), None)
        if change is None:
            false.append(one)
        elif any(place not in missing for place in range(one.low + 1, one.high)):
            wide.append(one)
        else:
            found.setdefault(change.place, []).append(one)
    steps = [step.place for step in truth.maintenance]
    return Score(
        found, wide, false, [one for one in false if any(one.low - _NEAR < at <= one.high + _NEAR for at in steps)]
    )


def _told(finding: Finding, places: Mapping[str, int]) -> Told:
    """The narrowest gap that is known: the culprit, else what bisection left over, else the two measured heads."""
    assert finding.before is not None
    assert finding.after is not None
    if finding.culprit is not None:
        place = places[finding.culprit.sha]
        return Told(finding, place - 1, place, named=True)
    low, high = places[finding.before.sha], places[finding.after.sha]
    for search in finding.bisections.exclude(state="canceled"):
        low = max(low, places[search.revisions[search.low]])
        high = min(high, places[search.revisions[search.high]])
    return Told(finding, low, high, named=high - low == 1)


def lines(truth: Truth, scored: Score) -> list[list[str]]:
    """A row for each true change: place, size, kind, and what was told of it."""
    return [
        [
            f"{change.place}",
            f"{100 * change.size:.1f} %",
            change.kind,
            _gap(truth, change),
            _said(scored, change).ljust(_WIDE),
        ]
        for change in truth.changes
    ]


def _gap(truth: Truth, change: Change) -> str:
    hidden = change.place in truth.unwanted or change.place in truth.unbuildable
    return "in a gap" if hidden else "measured"


def _said(scored: Score, change: Change) -> str:
    some = scored.found.get(change.place, ())
    return "; ".join(
        f"{'this revision' if told.named else f'after {told.low}, until {told.high}'}: {told.finding.headline}"[:90]
        for told in some
    ) or _why_not(change)


def _why_not(change: Change) -> str:
    """What is known of a change that was not told: candidates around it, and suspects that came to nothing."""
    points = ChangePoint.objects.filter(place__range=(change.place - 2, change.place + 14))
    rows = Finding.objects.filter(change_points__in=points).exclude(state__in=_TOLD).distinct()
    said = [f"{row.state}: {' '.join(row.reason.split())}" for row in rows]
    return f"NOT FOUND ({points.count()} suspects; {'; '.join(said)[:90]})"


def machine_questions() -> list[str]:
    rows = MachineQuestion.objects.select_related("machine").order_by("pk")
    return [f"{row.kind} {row.machine.name} at {row.place}: {row.detail[:100]}" for row in rows]

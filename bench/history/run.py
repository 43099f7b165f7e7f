"""What the service says about the simulated branch, held against what really happened."""

import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import structlog
from django.conf import settings
from django.db.models import Count

from bench.fleet_history import options
from bench.table import table
from demo.lab.history.branch import Played, play
from demo.lab.history.truth import Change, Truth, make_truth
from server.detection.models import ChangePoint, Finding, FindingState, MachineQuestion
from server.lab.models import Session, Trial
from server.lab.trials.question import spent
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


# Of twelve.
FOUND, FALSE = 10, 1


# The side of bench.fleet_history that has a database.
#
# python -m bench.scratch_database bench.history.run [OPTIONS]: see bench/fleet_history.py


def main(*arguments: str) -> None:
    chosen = options(arguments)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    settings.NOISE_HOURS = chosen.noise_hours
    truth = make_truth(
        chosen.seed,
        revisions=chosen.revisions,
        machines=chosen.machines,
        changes=chosen.changes,
        maintenance=chosen.maintenance,
        benchmarks=chosen.benchmarks,
    )
    played = play(truth, chosen.seed, lambda line: print(line, flush=True))
    sys.exit(_report(truth, played))


def _report(truth: Truth, played: Played) -> int:
    scored, seconds = score(truth, played.branch, played.places), played.seconds
    print(table(["change", "size", "where", "head", "told"], lines(truth, scored)))
    for told in scored.wide:
        print(f"WIDE after {told.low}, until {told.high}: {told.finding.headline}")
    for told in scored.false:
        print(f"FALSE after {told.low}, until {told.high}: {told.finding.headline}")
    print("maintenance: " + ", ".join(f"machine {step.machine} at {step.place}" for step in truth.maintenance))
    print("\n".join(machine_questions()))
    print(table(["machine time", "trials", "sessions", "boots", "hours"], _costs()))
    print(f"wall time {sum(seconds):.0f} s; a head: median {median(seconds):.2f} s, worst {max(seconds):.2f} s")
    held = [bar.said() for bar in _bars(truth, scored, played)]
    return 0 if all(held) else 1


@dataclass(frozen=True)
class FleetBar:
    """A figure, with its least or its most where it has a bar."""

    what: str
    number: int
    least: int | None = None
    most: int | None = None

    def said(self) -> bool:
        bars = [f">= {self.least}"] * (self.least is not None) + [f"<= {self.most}"] * (self.most is not None)
        holds = (self.least is None or self.number >= self.least) and (self.most is None or self.number <= self.most)
        verdict = f" ({', '.join(bars)}: {'pass' if holds else 'FAIL'})" if bars else ""
        print(f"{self.what}: {self.number}{verdict}")
        return holds


def _bars(truth: Truth, scored: Score, played: Played) -> list[FleetBar]:
    return [
        FleetBar("found at the right revision or gap", len(scored.found), least=round(FOUND / 12 * len(truth.changes))),
        FleetBar("  of them at one revision", scored.exact),
        FleetBar("maintenance steps told as code", len(scored.maintenance), most=0),
        FleetBar("false findings", len(scored.false), most=FALSE),
        FleetBar("findings that tell of a change again", scored.again),
        FleetBar("sessions that are not over", Session.objects.exclude(state__in=Session.FINAL).count()),
        FleetBar("tasks that failed", played.failed, most=0),
    ]


def _costs() -> list[list[str]]:
    rows = []
    counts = Trial.objects.order_by("purpose").values_list("purpose").annotate(number=Count("pk"))
    for purpose, number in counts:
        cost = spent(list(Trial.objects.filter(purpose=purpose).values_list("pk", flat=True)))
        rows.append([purpose, f"{number}", f"{cost.sessions}", f"{cost.boots}", f"{cost.seconds / 3600:.1f}"])
    return rows

"""The heat map of a branch: its newest judged head against the reference, by benchmark and microarchitecture."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from django.conf import settings
from django.db.models import F
from django.urls import reverse
from django.utils.http import urlencode

from server.dashboard.pictures.axis import speed, told
from server.dashboard.pictures.fingerprint import Column
from server.dashboard.pictures.heat_map import Heat, HeatMap, HeatRow
from server.dashboard.rows import figures
from server.dashboard.trees.measured import MeasuredBranch
from server.detection.findings.filters import CLAIMS, OPEN
from server.detection.models import ChangePoint, TimelinePoint, Verdict
from server.detection.models.finding import CHANGES

_STANDING = (ChangePoint.State.SUSPECT, ChangePoint.State.SETTLED)
# So many cases are rows of their own; of more, benchmarks are.
_MOST_CASES = 30
_MOST_ROWS = 400
_LONGEST_SUBJECT = 60
# A cell whose newest point is so much older than the branch's newest judged head is of the past.
_STALE_DAYS = 7


class _Point(NamedTuple):
    """The newest point of one timeline."""

    timeline: int
    benchmark: str
    case: str
    metric: str
    better: str
    uarch: str
    machine: int
    core_type: str
    ratio: float
    low: float | None
    high: float | None
    verdict: str
    committed_at: datetime

    @property
    def speed(self) -> float:
        return speed(self.ratio, self.better) or 0.0

    @property
    def name(self) -> str:
        kind = f" on {self.core_type}" if self.core_type != "all" else ""
        return f"{self.benchmark}/{self.case} {self.metric}{kind}"


_COLUMNS = (
    "timeline_id",
    "timeline__case__benchmark__name",
    "timeline__case__name",
    "timeline__metric__name",
    "timeline__metric__better",
    "timeline__machine__uarch__name",
    "timeline__machine_id",
    "timeline__core_type__name",
    "ratio",
    "ratio_low",
    "ratio_high",
    "comparison__verdict",
    "head__revision__committed_at",
)


@dataclass(frozen=True, slots=True)
class BranchHeat:
    """`benchmarks` and `uarchs` are all there are; `counts` says how many cells have each verdict."""

    picture: HeatMap
    counts: Mapping[str, int]
    cells: int
    benchmarks: tuple[str, ...]
    uarchs: tuple[str, ...]
    by_benchmark: bool
    unshown: int


def branch_heat(shown: MeasuredBranch, benchmark: str = "") -> BranchHeat | None:
    """None where no timeline has a point. Two queries; `benchmark` narrows to its cases."""
    points = _newest_points(shown)
    if not points:
        return None
    near = [one for one in points if benchmark in ("", one.benchmark)] or points
    uarchs = sorted({one.uarch for one in near})
    cases = {(one.benchmark, one.case, one.metric) for one in near}
    by_benchmark = len(cases) > _MOST_CASES and len({name for name, *_ in cases}) > 1
    flags = _open_findings(shown)
    rows: dict[tuple[str, str], dict[str, list[_Point]]] = defaultdict(lambda: defaultdict(list))
    for one in near:
        key = (one.benchmark, "") if by_benchmark else (f"{one.benchmark}/{one.case}", one.metric)
        rows[key][one.uarch].append(one)
    made = [_row(shown, key, cells, uarchs, flags) for key, cells in rows.items()]
    made.sort(key=_worst_first)
    return BranchHeat(
        picture=HeatMap(_columns(near, uarchs), tuple(made[:_MOST_ROWS]), _caption(shown)),
        counts=Counter(one.verdict for one in points),
        cells=len(points),
        benchmarks=tuple(sorted({one.benchmark for one in points})),
        uarchs=tuple(sorted({one.uarch for one in points})),
        by_benchmark=by_benchmark,
        unshown=max(0, len(made) - _MOST_ROWS),
    )


def _newest_points(shown: MeasuredBranch) -> list[_Point]:
    rows = TimelinePoint.objects.filter(
        timeline__branch=shown.id,
        timeline__reference=shown.reference_id,
        timeline__machine__virtual=shown.virtual,
        place=F("timeline__last_place"),
    )
    return [_Point(*row) for row in rows.order_by().values_list(*_COLUMNS)]


def _open_findings(shown: MeasuredBranch) -> dict[int, int]:
    """The newest open finding of each timeline that has one."""
    rows = ChangePoint.objects.filter(
        timeline__branch=shown.id,
        timeline__reference=shown.reference_id,
        state__in=_STANDING,
        finding__state__in=OPEN,
        finding__kind__in=CLAIMS,
    )
    if not settings.VIRTUAL_VERDICTS:
        rows = rows.filter(finding__virtual=False)
    return dict(rows.order_by("finding_id").values_list("timeline_id", "finding_id"))


def _columns(points: Iterable[_Point], uarchs: Sequence[str]) -> tuple[Column, ...]:
    machines: dict[str, set[int]] = defaultdict(set)
    for one in points:
        machines[one.uarch].add(one.machine)
    return tuple(Column(name, name, _counted(len(machines[name]), "machine")) for name in uarchs)


def _caption(shown: MeasuredBranch) -> str:
    since = f"the reference {shown.reference_sha[:12]} {shown.reference_subject[:_LONGEST_SUBJECT]}".strip()
    return (
        f"All that changed since {since}: {shown.tree}/{shown.name} at {shown.sha[:12]} beside it, worst first by the "
        "factor of speed"
    )


def _row(
    shown: MeasuredBranch,
    key: tuple[str, str],
    cells: Mapping[str, Sequence[_Point]],
    uarchs: Sequence[str],
    flags: Mapping[int, int],
) -> HeatRow:
    label, metric = key
    points = [one for own in cells.values() for one in own]
    cases = len({(one.case, one.metric) for one in points})
    href = timeline_address(min(points, key=lambda one: one.speed).timeline)
    if not metric:
        href = f"{reverse('branch', args=[shown.tree, shown.name])}?{urlencode({'benchmark': label})}"
    made = tuple(_heat(shown, cells[name], flags) if name in cells else None for name in uarchs)
    directions = {one.change > 0 for one in made if one and one.verdict in CHANGES and one.change}
    about = metric or _counted(cases, "case")
    return HeatRow(f"{label} {metric}".strip(), about, made, href, disagrees=len(directions) > 1)


def _heat(shown: MeasuredBranch, points: Sequence[_Point], flags: Mapping[int, int]) -> Heat:
    """What the cells of one row on one microarchitecture say together: the largest change that was judged to be one."""
    age = min((shown.committed_at - one.committed_at).days for one in points)
    fresh = [one for one in points if (shown.committed_at - one.committed_at).days < _STALE_DAYS] or points
    moved = sorted((one for one in fresh if one.verdict in CHANGES), key=lambda one: -abs(one.speed))
    findings = [flags[one.timeline] for one in points if one.timeline in flags]
    directions = {one.verdict for one in moved}
    if moved:
        speaker, verdict = moved[0], moved[0].verdict
    else:
        middle = statistics.median_low([one.speed for one in fresh])
        speaker = next(one for one in fresh if one.speed == middle)
        unchanged = all(one.verdict == Verdict.UNCHANGED for one in fresh)
        verdict = Verdict.UNCHANGED.value if unchanged else Verdict.INCONCLUSIVE.value
    return Heat(
        change=speaker.speed,
        verdict=verdict,
        said=_said(speaker, verdict, fresh),
        href=timeline_address(speaker.timeline),
        stale_days=age if age >= _STALE_DAYS else 0,
        finding=max(findings, default=None),
        split=len(directions) > 1,
        words=told(speaker.ratio, speaker.better),
    )


def _said(speaker: _Point, verdict: str, points: Sequence[_Point]) -> str:
    words = {Verdict.UNCHANGED.value: "no change", Verdict.INCONCLUSIVE.value: "inconclusive"}
    size = f"{told(speaker.ratio, speaker.better)} {figures.interval(speaker.low, speaker.high)}".strip()
    text = f"{speaker.name}: {words[verdict]}, {size}" if verdict in words else f"{speaker.name}: {size}"
    if len(points) == 1:
        return text
    counts = Counter(one.verdict for one in points)
    parts = [f"{counts[name]} {word}" for name, word in _COUNTED if counts[name]]
    return f"{text}; of {len(points)} cells {', '.join(parts)}"


_COUNTED = (
    (Verdict.REGRESSED.value, "slower"),
    (Verdict.IMPROVED.value, "faster"),
    (Verdict.UNCHANGED.value, "without change"),
    (Verdict.INCONCLUSIVE.value, "inconclusive"),
)


def _worst_first(row: HeatRow) -> tuple[float, float, str, str]:
    judged = [one.change for one in row.cells if one and one.verdict in CHANGES and one.change is not None]
    return (min([0.0, *judged]), -max([0.0, *judged]), row.label, row.about)


def timeline_address(timeline_id: int) -> str:
    return reverse("timeline", args=[timeline_id])


def _counted(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"

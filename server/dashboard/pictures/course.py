"""The course of a metric over revisions: one lane for each microarchitecture, under each other on one axis, drawn on
the server. A script makes them zoom; what it is given is `data`.
"""

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from server.dashboard.pictures import axis
from server.dashboard.pictures.axis import RatioAxis

HEIGHT = 120
# More points than this are drawn as minimum, median and maximum of as many slices as a plot has pixels.
MOST_POINTS = 2000
_SLICES = 1000
_MOST_DOTS = 120
_ACROSS = 1000


@dataclass(frozen=True, slots=True)
class CoursePoint:
    """`ratio` is the value beside that of the reference, as it is stored."""

    place: int
    sha: str
    subject: str
    author: str
    at: datetime
    ratio: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class CourseStep:
    """The level changes at this place."""

    place: int
    sha: str
    sentence: str
    href: str = ""


@dataclass(frozen=True, slots=True)
class CourseFlag:
    """A finding."""

    place: int
    href: str
    said: str


@dataclass(frozen=True, slots=True)
class CourseEvent:
    """Something that happened to the machine, not to the code."""

    place: int
    said: str


@dataclass(frozen=True, slots=True)
class CourseLane:
    key: str
    title: str
    better: str
    points: tuple[CoursePoint, ...]
    steps: tuple[CourseStep, ...] = ()
    flags: tuple[CourseFlag, ...] = ()
    events: tuple[CourseEvent, ...] = ()


class Slice(NamedTuple):
    """One or more points at one place: logarithms of speeds."""

    place: float
    low: float
    middle: float
    high: float


@dataclass(frozen=True, slots=True)
class DrawnLane:
    lane: CourseLane
    svg: SafeString
    said: str


@dataclass(frozen=True, slots=True)
class Course:
    """All lanes have the same scale: what is larger looks larger."""

    lanes: tuple[CourseLane, ...]
    min_effect: float
    axis: RatioAxis = field(init=False, compare=False)

    def __post_init__(self) -> None:
        sizes = (piece.middle for lane in self.lanes for piece in _pieces(lane))
        object.__setattr__(self, "axis", RatioAxis.around(sizes, self.min_effect))

    @property
    def points(self) -> int:
        return sum(len(lane.points) for lane in self.lanes)

    @property
    def revisions(self) -> list[CoursePoint]:
        """One point for each place, in order."""
        found = {point.place: point for lane in self.lanes for point in lane.points}
        return [found[place] for place in sorted(found)]

    @property
    def ends(self) -> tuple[CoursePoint, CoursePoint] | None:
        known = self.revisions
        return (known[0], known[-1]) if known else None

    @property
    def drawn(self) -> tuple[DrawnLane, ...]:
        ends = self.ends
        places = (ends[0].place, ends[1].place) if ends else (0, 0)
        return tuple(DrawnLane(lane, _svg(lane, self.axis, places), _said(lane)) for lane in self.lanes)

    @property
    def data(self) -> dict[str, Any]:
        """What the script draws. Revisions stand once for all lanes: there may be thousands."""
        return {
            "edge": math.log(self.axis.edge),
            "band": math.log1p(self.axis.min_effect),
            "ticks": [[_value(tick.at, self.axis), tick.label] for tick in self.axis.ticks],
            "revisions": {
                point.place: [point.sha[:12], point.subject, point.author, f"{point.at.astimezone(UTC):%Y-%m-%d}"]
                for point in self.revisions
            },
            "lanes": [_data(lane) for lane in self.lanes],
        }


def _value(percent: float, scale: RatioAxis) -> float:
    return round((percent - 50) / 50 * math.log(scale.edge), 5)


def _data(lane: CourseLane) -> dict[str, Any]:
    pieces = _pieces(lane)
    return {
        "places": [piece.place for piece in pieces],
        "speeds": [round(piece.middle, 5) for piece in pieces],
        "lows": [round(piece.low, 5) for piece in pieces],
        "highs": [round(piece.high, 5) for piece in pieces],
        "steps": [[step.place, step.sentence] for step in lane.steps],
        "flags": [[flag.place, flag.said, flag.href] for flag in lane.flags],
        "events": [[event.place, event.said] for event in lane.events],
    }


def _pieces(lane: CourseLane) -> list[Slice]:
    """The points of a lane that can be drawn, in order."""
    found = []
    for point in lane.points:
        size = axis.speed(point.ratio, lane.better)
        if size is None:
            continue
        ends = [s for r in (point.low, point.high) if r is not None and (s := axis.speed(r, lane.better)) is not None]
        found.append(Slice(point.place, min(ends, default=size), size, max(ends, default=size)))
    return sorted(found)


def thinned(pieces: Sequence[Slice], slices: int = _SLICES) -> list[Slice]:
    """As many slices as there are pixels: of each its lowest, its median and its highest point."""
    if len(pieces) <= MOST_POINTS:
        return list(pieces)
    first, last = pieces[0].place, pieces[-1].place
    buckets: dict[int, list[Slice]] = {}
    for piece in pieces:
        buckets.setdefault(min(int((piece.place - first) / max(last - first, 1) * slices), slices - 1), []).append(
            piece
        )
    return [_joined(bucket) for bucket in buckets.values()]


def _joined(bucket: Sequence[Slice]) -> Slice:
    middles = [piece.middle for piece in bucket]
    return Slice(bucket[len(bucket) // 2].place, min(middles), statistics.median(middles), max(middles))


def _said(lane: CourseLane) -> str:
    pieces = _pieces(lane)
    if not pieces:
        return f"{lane.title}: nothing measured"
    newest = pieces[-1].middle
    now = f"{axis.factor(newest)} {axis.direction(newest)}".strip()
    counts = [
        f"{len(rows)} {name}{'' if len(rows) == 1 else 's'}"
        for rows, name in ((lane.steps, "step"), (lane.flags, "finding"), (lane.events, "machine event"))
        if rows
    ]
    return f"{lane.title}: {len(pieces)} revisions, the newest {now} than the reference" + "".join(
        f", {count}" for count in counts
    )


def _svg(lane: CourseLane, scale: RatioAxis, places: tuple[int, int]) -> SafeString:
    """Numbers of this module, and texts that format_html escapes."""
    pieces = thinned(_pieces(lane))

    def across(place: float) -> float:
        first, last = places
        return round((place - first) / (last - first) * 100, 2) if last > first else 50.0

    top, tall = scale.band
    back = (
        f'<rect class="band" y="{top}%" width="100%" height="{tall}%"/>'
        + "".join(f'<line class="grid" x2="100%" y1="{tick.at}%" y2="{tick.at}%"/>' for tick in scale.ticks)
        + '<line class="one" x2="100%" y1="50%" y2="50%"/>'
    )
    parts = [mark_safe(back + _line(pieces, scale, across))]  # noqa: S308
    parts.append(format_html_join("", _STEP, _marks(lane.steps, across, places)))
    parts.append(format_html_join("", _FLAG, _marks(lane.flags, across, places)))
    parts.append(format_html_join("", _EVENT, _marks(lane.events, across, places)))
    return format_html(
        '<svg class="plot" width="100%" height="{}" role="img" aria-label="{}">{}</svg>',
        HEIGHT,
        _said(lane),
        format_html_join("", "{}", ((part,) for part in parts)),
    )


_STEP = '<line class="step" x1="{0}%" x2="{0}%" y2="100%"><title>{1}</title></line>'
_FLAG = '<svg x="{0}%"><path class="flag" d="M0 14V0L9 4 0 8"><title>{1}</title></path></svg>'
_EVENT = '<line class="event" x1="{0}%" x2="{0}%" y1="94%" y2="104%"><title>{1}</title></line>'


def _marks(rows: Iterable[Any], across: Any, places: tuple[int, int]) -> Iterator[tuple[float, str]]:
    """Those inside; what was found at other places does not belong into this stretch."""
    for row in rows:
        if places[0] <= row.place <= places[1]:
            yield across(row.place), row.sentence if isinstance(row, CourseStep) else row.said


def _line(pieces: Sequence[Slice], scale: RatioAxis, across: Any) -> str:
    """The line through the middles on the band of the intervals, stretched to whatever width there is."""
    if not pieces:
        return ""

    def up(size: float) -> float:
        return round(100 - scale.at(size), 2)

    xs = [across(piece.place) * _ACROSS / 100 for piece in pieces]
    line = " ".join(f"{x:g},{up(piece.middle)}" for x, piece in zip(xs, pieces, strict=True))
    upper = [f"{x:g},{up(piece.high)}" for x, piece in zip(xs, pieces, strict=True)]
    lower = [f"{x:g},{up(piece.low)}" for x, piece in zip(xs, pieces, strict=True)]
    dots = ""
    if len(pieces) == 1:
        (only,) = pieces
        dots = f'<line class="middle" x1="50%" x2="50%" y1="{up(only.low)}%" y2="{up(only.high)}%"/>'
    if len(pieces) <= _MOST_DOTS:
        dots += "".join(f'<circle cx="{across(piece.place)}%" cy="{up(piece.middle)}%" r="2"/>' for piece in pieces)
    return (
        f'<svg viewBox="0 0 {_ACROSS} 100" preserveAspectRatio="none" width="100%" height="100%">'
        f'<polygon class="reach" points="{" ".join(upper + lower[::-1])}"/>'
        f'<polyline class="middle" points="{line}"/></svg>{dots}'
    )

"""The course of a metric over revisions: one lane for each microarchitecture, under each other on one axis, drawn on
the server. A script makes them zoom; what it is given is `data`.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from server.dashboard.pictures import axis
from server.dashboard.pictures.axis import RatioAxis

HEIGHT = 120
# More points than this are drawn as minimum, median and maximum of slices; the script has all of them.
MOST_POINTS = 600
_SLICES, _FEWEST_SLICES, _SLICES_OF_ALL = 400, 100, 2400
_MOST_DOTS = 120
_ACROSS = 1000
# Speeds as the script is told of them: whole numbers are short.
_UNITS = 100_000

Floats = npt.NDArray[np.float64]


class CourseHead(NamedTuple):
    """A revision, which stands once for all lanes."""

    place: int
    sha: str
    subject: str
    author: str
    at: datetime


class CoursePoint(NamedTuple):
    """`ratio` is the value beside that of the reference, as it is stored."""

    place: int
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


@dataclass(frozen=True, slots=True)
class Pieces:
    """Columns of what is drawn, in the order of the places: logarithms of speeds."""

    places: Floats
    lows: Floats
    middles: Floats
    highs: Floats

    def __len__(self) -> int:
        return len(self.places)


@dataclass(frozen=True, slots=True)
class DrawnLane:
    lane: CourseLane
    svg: SafeString
    said: str


@dataclass(frozen=True)
class Course:
    """All lanes have the same scale: what is larger looks larger. Every place of a point is in `heads`."""

    lanes: tuple[CourseLane, ...]
    heads: Mapping[int, CourseHead]
    min_effect: float

    @cached_property
    def pieces(self) -> tuple[Pieces, ...]:
        return tuple(map(_pieces, self.lanes))

    @cached_property
    def axis(self) -> RatioAxis:
        ends = (end for of in self.pieces if len(of) for end in (of.middles.min(), of.middles.max()))
        return RatioAxis.around(map(float, ends), self.min_effect)

    @property
    def points(self) -> int:
        return sum(len(lane.points) for lane in self.lanes)

    @cached_property
    def revisions(self) -> list[CourseHead]:
        """Those that some lane has a point of, in order."""
        return [self.heads[place] for place in sorted({point.place for lane in self.lanes for point in lane.points})]

    @property
    def ends(self) -> tuple[CourseHead, CourseHead] | None:
        known = self.revisions
        return (known[0], known[-1]) if known else None

    @cached_property
    def drawn(self) -> tuple[DrawnLane, ...]:
        ends = self.ends
        places = (ends[0].place, ends[1].place) if ends else (0, 0)
        slices = min(max(_SLICES_OF_ALL // max(len(self.lanes), 1), _FEWEST_SLICES), _SLICES)
        found = []
        for lane, pieces in zip(self.lanes, self.pieces, strict=True):
            said = _said(lane, pieces)
            found.append(DrawnLane(lane, _svg(lane, said, thinned(pieces, slices), self.axis, places), said))
        return tuple(found)

    @property
    def data(self) -> dict[str, Any]:
        """What the script draws, by columns: revisions stand once for all lanes, authors once for all revisions."""
        known = self.revisions
        authors = {author: number for number, author in enumerate(dict.fromkeys(one.author for one in known))}
        index = {one.place: number for number, one in enumerate(known)}
        return {
            "edge": math.log(self.axis.edge),
            "band": math.log1p(self.axis.min_effect),
            "ticks": [[_value(tick.at, self.axis), tick.label] for tick in self.axis.ticks],
            "unit": 1 / _UNITS,
            "places": [one.place for one in known],
            "shas": [one.sha[:12] for one in known],
            "subjects": [one.subject for one in known],
            "authors": list(authors),
            "by": [authors[one.author] for one in known],
            "days": [one.at.astimezone(UTC).date().isoformat() for one in known],
            "lanes": [_data(lane, of, index) for lane, of in zip(self.lanes, self.pieces, strict=True)],
        }


def _value(percent: float, scale: RatioAxis) -> float:
    return round((percent - 50) / 50 * math.log(scale.edge), 5)


def _data(lane: CourseLane, pieces: Pieces, index: Mapping[int, int]) -> dict[str, Any]:
    """`at` are the numbers of its revisions, null where it has all of them."""
    return {
        "at": None if len(pieces) == len(index) else [index[place] for place in pieces.places.astype(int).tolist()],
        "speeds": _whole(pieces.middles),
        "lows": _whole(pieces.lows),
        "highs": _whole(pieces.highs),
        "steps": [[step.place, step.sentence] for step in lane.steps],
        "flags": [[flag.place, flag.said, flag.href] for flag in lane.flags],
        "events": [[event.place, event.said] for event in lane.events],
    }


def _whole(sizes: Floats) -> list[int]:
    found: list[int] = np.rint(sizes * _UNITS).astype(int).tolist()
    return found


def _pieces(lane: CourseLane) -> Pieces:
    """The points of a lane that can be drawn, in order."""
    # None becomes nan.
    rows = np.array(lane.points, dtype=float).reshape(-1, len(CoursePoint._fields))
    ratios = rows[:, 1:]
    with np.errstate(divide="ignore", invalid="ignore"):
        sizes = np.where((ratios > 0) & np.isfinite(ratios), np.log(ratios), np.nan)
    sizes = sizes if lane.better == "higher" else -sizes
    drawn = ~np.isnan(sizes[:, 0])
    places, sizes = rows[drawn, 0], sizes[drawn]
    order = np.argsort(places, kind="stable")
    middles, *ends = sizes[order].T
    # Where an end is not known, the interval begins at the value.
    return Pieces(places[order], np.fmin(middles, np.fmin(*ends)), middles, np.fmax(middles, np.fmax(*ends)))


def thinned(pieces: Pieces, slices: int = _SLICES) -> Pieces:
    """Of each slice its lowest, its median and its highest point."""
    if len(pieces) <= MOST_POINTS:
        return pieces
    along = (pieces.places - pieces.places[0]) / max(pieces.places[-1] - pieces.places[0], 1)
    buckets = np.minimum((along * slices).astype(int), slices - 1)
    begins = np.flatnonzero(np.diff(buckets, prepend=-1))
    ends = np.append(begins[1:], len(buckets))
    sizes = pieces.middles[np.lexsort((pieces.middles, buckets))]
    medians = (sizes[(begins + ends - 1) // 2] + sizes[(begins + ends) // 2]) / 2
    return Pieces(pieces.places[(begins + ends) // 2], sizes[begins], medians, sizes[ends - 1])


def _said(lane: CourseLane, pieces: Pieces) -> str:
    if not len(pieces):
        return f"{lane.title}: nothing measured"
    newest = float(pieces.middles[-1])
    now = f"{axis.factor(newest)} {axis.direction(newest)}".strip()
    counts = [
        f"{len(rows)} {name}{'' if len(rows) == 1 else 's'}"
        for rows, name in ((lane.steps, "step"), (lane.flags, "finding"), (lane.events, "machine event"))
        if rows
    ]
    return f"{lane.title}: {len(pieces)} revisions, the newest {now} than the reference" + "".join(
        f", {count}" for count in counts
    )


def _svg(lane: CourseLane, said: str, pieces: Pieces, scale: RatioAxis, places: tuple[int, int]) -> SafeString:
    """Numbers of this module, and texts that format_html escapes."""
    top, tall = scale.band
    back = (
        f'<rect class="band" y="{top}%" width="100%" height="{tall}%"/>'
        + "".join(f'<line class="grid" x2="100%" y1="{tick.at}%" y2="{tick.at}%"/>' for tick in scale.ticks)
        + '<line class="one" x2="100%" y1="50%" y2="50%"/>'
    )
    parts = [mark_safe(back + _line(pieces, scale, places))]  # noqa: S308
    parts.append(format_html_join("", _STEP, _marks(lane.steps, places)))
    parts.append(format_html_join("", _FLAG, _marks(lane.flags, places)))
    parts.append(format_html_join("", _EVENT, _marks(lane.events, places)))
    return format_html(
        '<svg class="plot" width="100%" height="{}" role="img" aria-label="{}">{}</svg>',
        HEIGHT,
        said,
        format_html_join("", "{}", ((part,) for part in parts)),
    )


_STEP = '<line class="step" x1="{0}%" x2="{0}%" y2="100%"><title>{1}</title></line>'
_FLAG = '<svg x="{0}%"><path class="flag" d="M0 14V0L9 4 0 8"><title>{1}</title></path></svg>'
_EVENT = '<line class="event" x1="{0}%" x2="{0}%" y1="94%" y2="104%"><title>{1}</title></line>'


def _marks(rows: Iterable[Any], places: tuple[int, int]) -> Iterator[tuple[float, str]]:
    """Those inside; what was found at other places does not belong into this stretch."""
    for row in rows:
        if places[0] <= row.place <= places[1]:
            across = _across(np.array([row.place]), places)[0]
            yield across, row.sentence if isinstance(row, CourseStep) else row.said


def _across(along: npt.NDArray[Any], places: tuple[int, int]) -> list[float]:
    """In percent of the width."""
    first, last = places
    share = (along - first) / (last - first) if last > first else np.full(len(along), 0.5)
    found: list[float] = np.round(share * 100, 2).tolist()
    return found


def _line(pieces: Pieces, scale: RatioAxis, places: tuple[int, int]) -> str:
    """The line through the middles on the band of the intervals, stretched to whatever width there is."""
    if not len(pieces):
        return ""

    def down(sizes: Floats) -> list[float]:
        found: list[float] = np.round(50 - 50 * np.clip(sizes / math.log(scale.edge), -1, 1), 1).tolist()
        return found

    xs, low, middle, high = _across(pieces.places, places), *map(down, (pieces.lows, pieces.middles, pieces.highs))
    line, upper, lower = (
        [f"{x * _ACROSS / 100:g},{y:g}" for x, y in zip(xs, ys, strict=True)] for ys in (middle, high, low)
    )
    dots = ""
    if len(pieces) == 1:
        dots = f'<line class="middle" x1="50%" x2="50%" y1="{low[0]}%" y2="{high[0]}%"/>'
    if len(pieces) <= _MOST_DOTS:
        dots += "".join(f'<circle cx="{x}%" cy="{y}%" r="2"/>' for x, y in zip(xs, middle, strict=True))
    return (
        f'<svg viewBox="0 0 {_ACROSS} 100" preserveAspectRatio="none" width="100%" height="100%">'
        f'<polygon class="reach" points="{" ".join(upper + lower[::-1])}"/>'
        f'<polyline class="middle" points="{" ".join(line)}"/></svg>{dots}'
    )

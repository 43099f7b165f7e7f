"""The small pictures: the staircase of a walk, the narrowing of a bisection, what a
machine shows between equal kernels night by night, and what waits for it.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from server.dashboard.pictures import axis
from server.dashboard.pictures.axis import RatioAxis

# Less than this on either side of the middle fills no picture of values: noise must not look like mountains.
_LEAST_HALF = 0.025
_LEAST_NIGHTS = 14


def _figure(kind: str, height: int, said: str, parts: Iterable[SafeString]) -> SafeString:
    inner = format_html_join("", "{}", ((part,) for part in parts))
    words = '<svg class="{}" width="100%" height="{}" role="img" aria-label="{}">{}</svg>'
    return format_html(words, kind, height, said, inner)


def _share(value: float, first: float, last: float) -> float:
    """In percent between two ends; the middle where they are one."""
    return round((value - first) / (last - first) * 100, 2) if last > first else 50.0


@dataclass(frozen=True, slots=True)
class Tread:
    """A series up to one of its patches, measured against the base; None where this prefix has no value."""

    ratio: float | None
    verdict: str
    said: str


@dataclass(frozen=True, slots=True)
class Flight:
    """All prefixes of one microarchitecture."""

    title: str
    better: str
    treads: tuple[Tread, ...]


@dataclass(frozen=True, slots=True)
class Staircase:
    """What a series does up to each of its patches: one line for each microarchitecture, up is better."""

    patches: tuple[str, ...]
    flights: tuple[Flight, ...]
    min_effect: float
    axis: RatioAxis = field(init=False, compare=False)

    def __post_init__(self) -> None:
        sizes = (size for flight in self.flights for _, size in _heights(flight))
        object.__setattr__(self, "axis", RatioAxis.around(sizes, self.min_effect))

    @property
    def drawn(self) -> tuple[tuple[Flight, SafeString, str], ...]:
        """With what the last prefix that has a value does."""
        return tuple(
            (flight, _flight(flight, len(self.patches), self.axis), _end_of(flight)) for flight in self.flights
        )


def _heights(flight: Flight) -> list[tuple[int, float]]:
    """By number of the patch, where there is a value."""
    return [
        (number, size)
        for number, tread in enumerate(flight.treads)
        if tread.ratio is not None and (size := axis.speed(tread.ratio, flight.better)) is not None
    ]


def _end_of(flight: Flight) -> str:
    ratios = [tread.ratio for tread in flight.treads if tread.ratio is not None]
    if not ratios:
        return ""
    told = axis.told(ratios[-1], flight.better)
    last = max(number for number, tread in enumerate(flight.treads, 1) if tread.ratio is not None)
    return told if last == len(flight.treads) else f"{told} up to {last}"


def _flight(flight: Flight, patches: int, scale: RatioAxis) -> SafeString:
    top, tall = scale.band
    wide = 100 / max(patches + 1, 1)
    parts = [
        format_html('<rect class="band" y="{}%" width="100%" height="{}%"/>', top, tall),
        SafeString('<line class="one" x2="100%" y1="50%" y2="50%"/>'),
    ]
    before, right = 50.0, wide
    for number, size in _heights(flight):
        tread, up = flight.treads[number], round(100 - scale.at(size), 2)
        left = round((number + 1) * wide, 2)
        parts.append(
            format_html(
                '<g class="{verdict}"><line class="tread" x1="{right}%" x2="{left}%" y1="{before}%" y2="{before}%"/>'
                '<line class="tread" x1="{left}%" x2="{left}%" y1="{before}%" y2="{up}%"/>'
                '<line class="tread own" x1="{left}%" x2="{end}%" y1="{up}%" y2="{up}%">'
                "<title>{said}</title></line></g>",
                verdict=tread.verdict,
                right=round(right, 2),
                left=left,
                end=round(left + wide, 2),
                before=before,
                up=up,
                said=tread.said,
            )
        )
        before, right = up, left + wide
    said = f"{flight.title}: " + ("; ".join(tread.said for tread in flight.treads) or "nothing measured")
    return _figure("stairs", 64, said, parts)


@dataclass(frozen=True, slots=True)
class NarrowingStep:
    """One revision that was asked for, its place in the range, and the ends of what was left afterwards."""

    place: int
    sha: str
    subject: str
    answer: str
    low: int
    high: int
    said: str
    href: str = ""

    @property
    def told(self) -> str:
        return ANSWERS.get(self.answer, self.answer)


@dataclass(frozen=True, slots=True)
class Narrowing:
    """A bisection: the range from the end without the change (place 0) to the one with it (place `total`)."""

    total: int
    steps: tuple[NarrowingStep, ...]

    @property
    def drawn(self) -> tuple[tuple[NarrowingStep, SafeString], ...]:
        return tuple((step, _narrowed(step, self.total)) for step in self.steps)


# What changed may have become better: neither end is the good one.
ANSWERS = {"good": "without it", "bad": "with it", "skipped": "skipped", "unsure": "cannot be told"}
_ANSWER_MARKS = {
    "good": '<path class="before" d="M6 0-4-5.5V5.5z"/>',
    "bad": '<path class="after" d="M-6 0 4-5.5V5.5z"/>',
    "skipped": '<path class="failed" d="M-4-4 4 4M4-4-4 4"/>',
}
_UNSURE = '<circle class="inconclusive hollow" r="4"/>'


def _narrowed(step: NarrowingStep, total: int) -> SafeString:
    left, right = _share(step.low, 0, total), _share(step.high, 0, total)
    bar = format_html(
        '<rect class="all" width="100%" y="7" height="4"/><rect class="left" x="{}%" width="{}%" y="4" height="10"/>',
        left,
        max(round(right - left, 2), 0.3),
    )
    mark = format_html(
        '<svg x="{}%" y="9">{}</svg>',
        _share(step.place, 0, total),
        SafeString(_ANSWER_MARKS.get(step.answer, _UNSURE)),
    )
    said = f"{step.told}: {max(step.high - step.low, 0)} of {total} commits left"
    return _figure("narrowed", 18, said, (bar, mark))


@dataclass(frozen=True, slots=True)
class Night:
    """What a machine showed between equal kernels: half the width in which 95 % of its cells lie, as a fraction."""

    day: date
    spread: float
    false_alarms: int
    cells: int

    @property
    def said(self) -> str:
        alarms = f"{self.false_alarms} false alarm{'' if self.false_alarms == 1 else 's'} of {self.cells}"
        return f"{self.day}: ±{self.spread * 100:.1f} %, {alarms}"


@dataclass(frozen=True, slots=True)
class NoiseCourse:
    """Of one machine; `expected` is the spread its noise profile promises, if there is one."""

    nights: tuple[Night, ...]
    expected: float | None = None

    @property
    def top(self) -> float:
        return max(_LEAST_HALF, self.expected or 0, *(night.spread for night in self.nights)) * 1.1

    @property
    def rate(self) -> str:
        cells = sum(night.cells for night in self.nights)
        alarms = sum(night.false_alarms for night in self.nights)
        return f"{alarms} of {cells} ({alarms / cells * 100:.2f} %)" if cells else "none measured"

    @property
    def svg(self) -> SafeString:
        wide = 100 / max(len(self.nights), _LEAST_NIGHTS)
        bars = format_html_join("", _NIGHT, (self._bar(n, night, wide) for n, night in enumerate(self.nights)))
        promised = round(100 - (self.expected or 0) / self.top * 100, 2)
        line = '<line class="expected" x2="100%" y1="{0}%" y2="{0}%"/>'
        parts = (bars, format_html(line, promised) if self.expected is not None else SafeString(""))
        return _figure("noise", 90, f"Spread of {len(self.nights)} nights; false alarms {self.rate}", parts)

    def _bar(self, number: int, night: Night, wide: float) -> tuple[object, ...]:
        height = round(min(night.spread / self.top, 1) * 100, 2)
        kind = "alarmed" if night.false_alarms else "calm"
        left = round(number * wide + wide * 0.1, 2)
        top, bar = round(100 - height, 2), round(wide * 0.8, 2)
        return kind, night.said, left, top, bar, height, self._alarms(night, left, top)

    @staticmethod
    def _alarms(night: Night, left: float, top: float) -> SafeString:
        if not night.false_alarms:
            return SafeString("")
        return format_html('<text x="{}%" y="{}%" dy="-3">{}</text>', left, top, night.false_alarms)


_NIGHT = '<g class="{0}"><title>{1}</title><rect x="{2}%" y="{3}%" width="{4}%" height="{5}%"/>{6}</g>'


@dataclass(frozen=True, slots=True)
class QueueBar:
    """One build or session: `kind` is runs or waits. One that waits for something without a date has no `end`."""

    label: str
    start: datetime
    end: datetime | None
    kind: str
    said: str
    href: str = ""


@dataclass(frozen=True, slots=True)
class QueueBars:
    """Expected start and end of what is in work and what waits, from `now` on."""

    now: datetime
    bars: tuple[QueueBar, ...]

    @property
    def end(self) -> datetime:
        ends = [moment for bar in self.bars for moment in (bar.start, bar.end) if moment is not None]
        return max([self.now + timedelta(hours=1), *ends])

    @property
    def begin(self) -> datetime:
        return min([self.now, *(bar.start for bar in self.bars)])

    @property
    def hours(self) -> tuple[tuple[float, str], ...]:
        """Ticks in percent, at most eight and on full hours."""
        whole = (self.end - self.begin) / timedelta(hours=1)
        step = next((size for size in (1, 2, 3, 6, 12, 24) if whole / size <= 8), math.ceil(whole / 8 / 24) * 24)  # noqa: PLR2004
        first = self.begin.astimezone(UTC).replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
        ticks: Sequence[datetime] = [first + timedelta(hours=n * step) for n in range(9)]
        form = "%H:%M" if step < 24 else "%m-%d"  # noqa: PLR2004 (hours of a day)
        return tuple((self.at(tick), tick.strftime(form)) for tick in ticks if tick <= self.end)

    def at(self, moment: datetime) -> float:
        return _share(moment.timestamp(), self.begin.timestamp(), self.end.timestamp())

    @property
    def drawn(self) -> tuple[tuple[QueueBar, SafeString], ...]:
        return tuple((bar, self._drawn(bar)) for bar in self.bars)

    def _drawn(self, bar: QueueBar) -> SafeString:
        left = self.at(bar.start)
        right = 100.0 if bar.end is None else self.at(max(bar.end, bar.start))
        kind = f"{'runs' if bar.kind == 'runs' else 'waits'}{'' if bar.end else ' endless'}"
        rect = format_html(
            '<rect class="{}" x="{}%" width="{}%" y="3" height="12"/>', kind, left, max(round(right - left, 2), 0.4)
        )
        now = format_html('<line class="now" x1="{0}%" x2="{0}%" y2="18"/>', self.at(self.now))
        return _figure("queue-bar", 18, bar.said, (rect, now))

"""Whether a site stays as it is: what its figures of each day grow by, beside what they may."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.stats import theilslopes

from bench.replay.report import Line
from bench.table import table

MEMORY, CONNECTIONS, DESCRIPTORS, THREADS, FILES = "MB", "connections", "descriptors", "threads", "files"
ORPHANS, OVERDUE, STRAYS = "orphans", "overdue", "strays"
# What must never be there at the end of a day.
_NONE = (ORPHANS, OVERDUE, STRAYS)
# What each kind of figure may grow by: so much a day, or so much at all, or this share of it, whichever is most.
_SHARE = 0.05
_A_DAY = {MEMORY: 1.0}
_AT_ALL = {CONNECTIONS: 3.0, DESCRIPTORS: 6.0, THREADS: 3.0, FILES: 5.0}
# Fewer days have no two thirds worth a line.
FEWEST_DAYS = 6


@dataclass
class DayFigures:
    """At the end of a day: `bounded` by kind and whose it is, such as (MEMORY, "web"); `told` is only shown.

    `named` has names of what should not be there, by kind.
    """

    number: int
    seconds: float
    bounded: dict[tuple[str, str], float] = field(default_factory=dict)
    told: dict[str, float] = field(default_factory=dict)
    named: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Growth:
    """From the first day of the last two thirds to the last day, along a line that single days do not move."""

    begin: float
    by: float
    days: int

    def most(self, kind: str) -> float:
        return max(_A_DAY.get(kind, 0.0) * self.days, _AT_ALL.get(kind, 0.0), _SHARE * self.begin)


def growth(figures: Sequence[float]) -> Growth:
    """Theil and Sen's line through the last two thirds: a third of the days may be anything."""
    last = figures[len(figures) // 3 :]
    slope, begin, *_ = theilslopes(last, np.arange(len(last)))
    return Growth(float(begin), float(slope) * (len(last) - 1), len(last) - 1)


def judge(days: Sequence[DayFigures]) -> list[Line]:
    """A line for each figure that has a bar; one that was not there on some day was 0 then."""
    names = sorted({name for day in days for name in day.bounded})
    lines = [_grown(kind, whose, [day.bounded.get((kind, whose), 0.0) for day in days]) for kind, whose in names]
    return [*lines, *(_none(kind, days) for kind in _NONE)]


def _grown(kind: str, whose: str, figures: Sequence[float]) -> Line:
    found = growth(figures)
    most = found.most(kind)
    seen = f"{found.by:+.1f} from {found.begin:.1f} in {found.days} days"
    return Line(f"{kind}: {whose}", f"<= {most:+.1f}", seen, found.by <= most)


def _none(kind: str, days: Sequence[DayFigures]) -> Line:
    found = [(day.number, name) for day in days for name in day.named.get(kind, [])]
    told = "; ".join(f"day {number}: {name}" for number, name in found[:3])
    return Line(f"{kind} at the end of any day", "0", f"{len(found)}: {told}" if found else "0", not found)


def days_table(days: Sequence[DayFigures]) -> str:
    """What is bounded and what is only told, a row for each day; of what is no memory, the sum of all whose it is."""
    memory = sorted({whose for day in days for kind, whose in day.bounded if kind == MEMORY})
    sums = [CONNECTIONS, DESCRIPTORS, THREADS, FILES]
    told = list(dict.fromkeys(name for day in days for name in day.told))
    rows = [
        [
            str(day.number),
            f"{day.seconds:.0f}",
            *(f"{day.bounded.get((MEMORY, whose), 0.0):.1f}" for whose in memory),
            *(f"{sum(value for (of, _), value in day.bounded.items() if of == kind):.0f}" for kind in sums),
            *(str(len(day.named.get(kind, []))) for kind in _NONE),
        ]
        for day in days
    ]
    bounded = table(["day", "s", *(f"{whose} {MEMORY}" for whose in memory), *sums, *_NONE], rows)
    others = [[str(day.number), *(f"{day.told.get(name, 0.0):.0f}" for name in told)] for day in days]
    return f"{bounded}\n\n{table(['day', *told], others)}"

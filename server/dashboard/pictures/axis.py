"""The axis that effects are drawn on: the logarithm of how fast the patched kernel is beside the base, no change in the
middle, better to the right whatever the metric's direction, and as far to either side.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from server.core.rounding import size_digits, size_of

# The first edge is as near as an axis ever ends: noise of 1 % must not look like mountains. Beyond the last one points
# are arrows: a single 300x must not squeeze all others into the middle.
_EDGES = (1.025, 1.05, 1.1, 1.2, 1.4, 2.0, 3.0, 4.0, 8.0)
_INNER = {
    1.025: (1.01,),
    1.05: (1.02,),
    1.1: (1.05,),
    1.2: (1.1,),
    1.4: (1.2,),
    2.0: (1.4,),
    3.0: (1.7,),
    4.0: (2.0,),
    8.0: (2.0, 4.0),
}
# A point at the very edge would be cut in half.
_ROOM = 1.06
_IN_PERCENT = 1.1


def speed(ratio: float, better: str) -> float | None:
    """The logarithm of a speed from a ratio as it is stored: above 0 is better. None where there is none."""
    if not (ratio > 0 and math.isfinite(ratio)):
        return None
    return math.log(ratio) if better == "higher" else -math.log(ratio)


def factor(size: float) -> str:
    """`1.41x` for the logarithm of a speed, whatever its direction."""
    times = math.exp(min(abs(size), 50))
    return f"{times:.{size_digits(times, factor=True)}f}x"


def direction(size: float) -> str:
    return "faster" if size > 0 else "slower" if size < 0 else ""


def told(ratio: float, better: str) -> str:
    """`41 % slower`, `2.0x faster`: of small changes the percents, of large ones how many times."""
    size = speed(ratio, better)
    if size is None:
        return "no ratio"
    if abs(ratio - 1) * 100 < 0.05:  # noqa: PLR2004 (what one decimal cannot show)
        return "0.0 %"
    return f"{size_of(ratio)} {direction(size)}"


@dataclass(frozen=True, slots=True)
class Tick:
    """`at` is in percent of the width; `inner` ones give way where there is no room."""

    at: float
    label: str
    anchor: str
    inner: bool


@dataclass(frozen=True, slots=True)
class Interval:
    """Where an interval is drawn, in percent; arrows where it goes on beyond the edge."""

    low: float
    high: float
    arrow_low: bool
    arrow_high: bool


@dataclass(frozen=True, slots=True)
class RatioAxis:
    """`edge` is the ratio at the right end, `min_effect` a fraction."""

    edge: float
    min_effect: float

    @classmethod
    def around(cls, sizes: Iterable[float], min_effect: float) -> Self:
        """One that shows all `sizes`, logarithms of speeds; those beyond the largest edge leave it."""
        farthest = max((abs(size) for size in sizes if math.isfinite(size)), default=0.0)
        needed = max(farthest, math.log1p(max(min_effect, 0.0))) * _ROOM
        edge = next((edge for edge in _EDGES if math.log(edge) >= needed), _EDGES[-1])
        return cls(edge, max(min_effect, 0.0))

    def at(self, size: float) -> float:
        """In percent from the left, never outside."""
        return round(50 + 50 * min(max(size / math.log(self.edge), -1.0), 1.0), 2)

    def leaves(self, size: float) -> int:
        """-1 or 1 where `size` is outside on the left or on the right, 0 inside."""
        limit = math.log(self.edge)
        return (size > limit) - (size < -limit)

    def interval(self, low: float | None, high: float | None, better: str) -> Interval | None:
        """Of two stored ratios; the worse end stands left."""
        if low is None or high is None or math.isnan(low) or math.isnan(high):
            return None
        ends = sorted(_end(ratio, better) for ratio in (low, high))
        return Interval(self.at(ends[0]), self.at(ends[1]), self.leaves(ends[0]) < 0, self.leaves(ends[1]) > 0)

    @property
    def band(self) -> tuple[float, float]:
        return self.band_of(self.min_effect)

    def band_of(self, min_effect: float) -> tuple[float, float]:
        """Left edge and width of what is no change worth a word, in percent."""
        half = math.log1p(min_effect)
        left = self.at(-half)
        return left, round(100 - 2 * left, 2)

    @property
    def ticks(self) -> tuple[Tick, ...]:
        inner = _INNER.get(self.edge, ())
        right = [Tick(self.at(math.log(r)), _label(r), "middle", inner=True) for r in inner]
        left = [Tick(round(100 - tick.at, 2), tick.label, "middle", inner=True) for tick in reversed(right)]
        edge = _label(self.edge)
        ends = Tick(0, edge, "start", inner=False), Tick(100, edge, "end", inner=False)
        return ends[0], *left, Tick(50, "1", "middle", inner=False), *right, ends[1]


def _end(ratio: float, better: str) -> float:
    """An end of an interval may be zero or infinite: it is beyond every edge."""
    if ratio <= 0:
        return -math.inf if better == "higher" else math.inf
    if math.isinf(ratio):
        return math.inf if better == "higher" else -math.inf
    return math.log(ratio) if better == "higher" else -math.log(ratio)


def _label(ratio: float) -> str:
    """Percents up to 10: there it does not matter whether one counts them up or down."""
    return f"{(ratio - 1) * 100:.3g} %" if ratio < _IN_PERCENT else f"{ratio:.3g}x"

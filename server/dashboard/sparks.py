"""A timeline drawn as one line: where its points lie in a box of fixed size, and where its level changed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 800, 200
_MARGIN = 8
# Less than this fills no box: noise of a quiet timeline must not look like mountains.
_LEAST_SPAN = 0.04


@dataclass(frozen=True, slots=True)
class Spark:
    """`line` are the points of an SVG polyline, `marks` the x of level changes; `low` and `high` are the ratios at the
    lower and the upper edge.
    """

    line: str
    marks: tuple[float, ...]
    low: float
    high: float
    width: int = WIDTH
    height: int = HEIGHT


def spark(places: Sequence[int], ratios: Sequence[float], changes: Sequence[int]) -> Spark | None:
    """None for less than two points. `places` grow; `changes` are places too, those outside are left out."""
    known = [(x, y) for x, y in zip(places, ratios, strict=True) if math.isfinite(y)]
    if len(known) < 2:  # noqa: PLR2004 (a line has two ends)
        return None
    first, last = known[0][0], known[-1][0]
    low, high = _edges([y for _, y in known])

    def across(place: int) -> float:
        return round(_MARGIN + (WIDTH - 2 * _MARGIN) * (place - first) / max(last - first, 1), 1)

    def up(ratio: float) -> float:
        return round(HEIGHT - _MARGIN - (HEIGHT - 2 * _MARGIN) * (ratio - low) / (high - low), 1)

    line = " ".join(f"{across(x)},{up(y)}" for x, y in known)
    return Spark(line, tuple(across(place) for place in changes if first <= place <= last), low, high)


def _edges(ratios: Sequence[float]) -> tuple[float, float]:
    low, high = min(ratios), max(ratios)
    missing = max(0.0, _LEAST_SPAN - (high - low)) / 2
    return low - missing, high + missing

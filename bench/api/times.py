"""Times of several askings, and what lies between them."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Times:
    """Milliseconds, of several askings."""

    all: tuple[float, ...]

    @property
    def p50(self) -> float:
        return percentile(self.all, 0.50)

    @property
    def p95(self) -> float:
        return percentile(self.all, 0.95)


def percentile(values: Sequence[float], share: float) -> float:
    """Between the two values next to it; of none, nan."""
    if not values:
        return float("nan")
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)

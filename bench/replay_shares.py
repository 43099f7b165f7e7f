"""Shares with their intervals, beside their bars."""

import math
from collections import Counter
from dataclasses import dataclass

from bench.table import table

_Z95 = 1.959964


@dataclass(frozen=True)
class Rate:
    """`hits` of `tries`, with what they must be."""

    what: str
    hits: int
    tries: int
    holds: bool
    wanted: str
    seconds: float
    kinds: Counter[str]

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(self.hits, self.tries)


def wilson(hits: int, tries: int) -> tuple[float, float]:
    """A 95 % interval of a share (Wilson, J. Am. Statist. Assoc. 22, 1927)."""
    if not tries:
        return 0.0, 1.0
    share, z2 = hits / tries, _Z95**2
    middle = (share + z2 / (2 * tries)) / (1 + z2 / tries)
    half = _Z95 / (1 + z2 / tries) * math.sqrt(share * (1 - share) / tries + z2 / (4 * tries**2))
    return max(0.0, middle - half), min(1.0, middle + half)


def rates_table(rates: list[Rate]) -> str:
    rows = []
    for rate in rates:
        low, high = rate.interval
        share = f"{rate.hits / rate.tries:.1%}"
        interval = f"{low:.1%} to {high:.1%}"
        kinds = ", ".join(f"{count} {kind}" for kind, count in rate.kinds.most_common())
        figures = [f"{rate.hits} of {rate.tries}", share, interval, rate.wanted, "ok" if rate.holds else "FAIL"]
        rows.append([rate.what, *figures, f"{rate.seconds / max(1, rate.tries):.1f} s", kinds])
    return table(["", "seen", "share", "95 % interval", "bar", "", "each", "findings"], rows)

"""Expected beside seen, and shares with their intervals beside their bars."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import shorten

from bench.table import table

_WIDEST = 90


@dataclass(frozen=True)
class Line:
    """One expectation."""

    what: str
    expected: str
    seen: str
    right: bool


def line(what: str, expected: str, seen: str) -> Line:
    return Line(what, expected, seen, seen == expected)


def expected_table(lines: Sequence[Line]) -> str:
    rows = [[each.what, each.expected, shorten(each.seen, _WIDEST), "ok" if each.right else "FAIL"] for each in lines]
    long = [f"{each.what.strip()}: {each.seen}" for each in lines if len(each.seen) > _WIDEST]
    return "\n".join([table(["", "expected", "seen", ""], rows), *long])


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

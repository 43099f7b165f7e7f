"""What can be chosen, the bars, and the tables that are printed."""

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.api.times import Times
from bench.table import table

PAGE_MS, MOST_QUERIES, MOST_KB = 150.0, 12, 250.0


def options(arguments: Sequence[str], description: str | None = None) -> argparse.Namespace:
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m bench.dashboard", description=description, formatter_class=plain)
    parser.add_argument("--values", type=float, default=0.5, help="millions that the site holds")
    parser.add_argument("--clients", type=int, default=8, help="that ask at once, after one alone")
    parser.add_argument("--requests", type=int, default=20, help="of each client, of each page")
    parser.add_argument("--only", default="", help="pages whose name holds this")
    parser.add_argument("--series", type=int, default=3000, help="of five years")
    parser.add_argument("--heads", type=int, default=1826, help="of the branch that is measured every day")
    parser.add_argument("--no-pages", action="store_true", help="only the pictures")
    parser.add_argument("--no-pictures", action="store_true", help="only the pages")
    return parser.parse_args(arguments)


@dataclass(frozen=True)
class PageCost:
    """Of one page; `alone` and `crowded` are times through the web server, `statuses` whatever it answered."""

    name: str
    queries: int
    size: int
    alone: Times
    crowded: Times
    statuses: frozenset[int]
    allowed: frozenset[int] = field(default=frozenset({200}))
    # Without data; none: as it is.
    bare: int | None = None

    @property
    def weight(self) -> int:
        return self.size if self.bare is None else self.bare

    @property
    def missed(self) -> list[str]:
        found = [f"answered {status}" for status in sorted(self.statuses - self.allowed)]
        if not self.alone.p95 <= PAGE_MS:
            found.append(f"p95 {self.alone.p95:.0f} ms, not {PAGE_MS:.0f}")
        if self.queries > MOST_QUERIES:
            found.append(f"{self.queries} queries, not {MOST_QUERIES}")
        if self.weight > 1000 * MOST_KB:
            found.append(f"{self.weight / 1000:.0f} kB without data, not {MOST_KB:.0f}")
        return found


def pages_table(costs: Sequence[PageCost], clients: int) -> str:
    head = ["page", "p50 ms", "p95 ms", f"p95 of {clients}", "queries", "kB", "without data", ""]
    rows = [
        [
            one.name,
            f"{one.alone.p50:.0f}",
            f"{one.alone.p95:.0f}",
            f"{one.crowded.p95:.0f}",
            str(one.queries),
            f"{one.size / 1000:.0f}",
            f"{one.weight / 1000:.0f}",
            "FAIL" if one.missed else "pass",
        ]
        for one in costs
    ]
    return table(head, [*rows, ["bar", "", f"{PAGE_MS:.0f}", "", str(MOST_QUERIES), "", f"{MOST_KB:.0f}", ""]])


@dataclass(frozen=True)
class Drawing:
    """A picture of the gallery, with the most milliseconds that Chromium may take for it.

    `mark` is the measure of the script that draws it; without one the server drew it.
    """

    what: str
    path: str
    most_ms: float
    mark: str = ""


DRAWINGS = (
    Drawing("timeline of 5000 points", "/gallery/course/", 100.0, "course"),
    Drawing("heat map of 60 x 400 cells", "/gallery/heat_map/", 300.0),
)


@dataclass(frozen=True)
class Drawn:
    """Milliseconds of several drawings; the middle one counts, for a host has other things to do as well."""

    drawing: Drawing
    times: Times

    @property
    def missed(self) -> list[str]:
        seen, most = self.times.p50, self.drawing.most_ms
        if math.isnan(seen):
            return ["was not drawn"]
        return [f"{seen:.0f} ms, not {most:.0f}"] if seen > most else []


def drawings_table(drawn: Sequence[Drawn]) -> str:
    rows = [
        [
            one.drawing.what,
            f"{one.times.p50:.0f}",
            f"{one.times.p95:.0f}",
            f"{one.drawing.most_ms:.0f}",
            "FAIL" if one.missed else "pass",
        ]
        for one in drawn
    ]
    return table(["drawn in Chromium, ms", "p50", "p95", "bar of p50", ""], rows)


def missed(costs: Sequence[PageCost], drawn: Sequence[Drawn]) -> list[str]:
    """Sentences that name what was asked or drawn, what was seen and what was wanted."""
    pages = [f"{one.name}: {what}" for one in costs for what in one.missed]
    return pages + [f"{one.drawing.what}: {what}" for one in drawn for what in one.missed]

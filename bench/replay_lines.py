"""Expected beside seen: one line for each, ok or FAIL."""

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

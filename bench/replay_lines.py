"""Expected beside seen: one line for each, ok or FAIL."""

from collections.abc import Sequence
from dataclasses import dataclass

from bench.table import table


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
    rows = [[each.what, each.expected, each.seen, "ok" if each.right else "FAIL"] for each in lines]
    return table(["", "expected", "seen", ""], rows)

"""How often a comparison errs where nothing changed, by the shape of the data; beside a t test on boot means."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.kit import Pairs, Row
from bench.table import table

LEVEL = 0.05
Key = Callable[[Row], str]


@dataclass(frozen=True)
class Rate:
    """Among `pairs` pairs that share something: how many were called different, and how wide their intervals are."""

    group: str
    pairs: int
    called: float
    covered: float
    width: float

    @property
    def error(self) -> float:
        """Standard error of `called`."""
        return math.sqrt(self.called * (1 - self.called) / self.pairs)


def rate(group: str, rows: Sequence[Row], found: dict[str, Row]) -> Rate:
    called = covered = 0
    widths = []
    for row in rows:
        prediction = found[row["id"]]
        called += bool(prediction.get("reject", prediction["p"] < LEVEL))
        if prediction["lo"] is not None:
            covered += prediction["lo"] <= row["effect"] <= prediction["hi"]
            widths.append(prediction["hi"] - prediction["lo"])
    middle = sorted(widths)[len(widths) // 2] if widths else math.nan
    return Rate(group, len(rows), called / len(rows), covered / max(1, len(widths)), middle)


def _design(row: Row) -> str:
    return f"{row['boots']}x{row['samples']}"


GROUPS: Sequence[tuple[str, Key]] = (
    ("design", _design),
    ("trait", lambda row: str(row["trait"])),
    ("correlation", lambda row: str(row["icc"])),
    ("trait in design", lambda row: f"{row['trait']}, {_design(row)}"),
)


def rates_table(pairs: Pairs, ours: Sequence[Row], t_on_boots: Sequence[Row]) -> str:
    """False positives of both, coverage, and width as a share of the t interval's, on pairs without a change."""
    null = [row for row in pairs.rows if row["kind"] == "null"]
    mine, other = ({row["id"]: row for row in predictions} for predictions in (ours, t_on_boots))
    head = ["no change, by", "pairs", "false positives", "+-", "coverage", "width / t", "t on boots"]
    lines = [_line("all", null, mine, other)]
    for name, key in GROUPS:
        for group in sorted({key(row) for row in null}):
            same = [row for row in null if key(row) == group]
            lines += [_line(f"{name}: {group}", same, mine, other)]
    return table(head, lines)


def _line(group: str, rows: Sequence[Row], mine: dict[str, Row], other: dict[str, Row]) -> list[str]:
    own, t = rate(group, rows, mine), rate(group, rows, other)
    figures = [f"{own.called:.4f}", f"{own.error:.4f}", f"{own.covered:.4f}", f"{own.width / t.width:.3f}"]
    return [group, str(own.pairs), *figures, f"{t.called:.4f}"]

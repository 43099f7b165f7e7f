"""What a page of a finding says first: a chip for each microarchitecture, a sentence, why, the worst cases, and how to
run the worst of them again.
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from server.core.rounding import seen_effect
from server.dashboard.rows.verdicts import VERDICT_ORDER, FiguresRow, lines
from server.dashboard.verdicts.coverage import in_common
from server.detection.findings.table import CaseRow, ComparisonTable
from server.detection.findings.vector import SPLIT, as_speed
from server.detection.models import Comparison, Finding, FindingVerdict, Verdict
from server.detection.models.finding import CHANGES
from server.stats.explanation.search import Outcome


@dataclass(frozen=True, slots=True)
class StripChip:
    """`verdict` is how the chip looks; `sizes` and `counts` say what moved and in how many cells."""

    uarch: str
    verdict: str
    word: str
    sizes: str
    counts: str
    reason: str


@dataclass(frozen=True, slots=True)
class WorstCase:
    uarch: str
    line: FiguresRow
    speed: str


@dataclass(frozen=True, slots=True)
class FirstWords:
    kind: str
    sentence: str
    chips: tuple[StripChip, ...]
    why: str
    worst: tuple[WorstCase, ...]
    again: CaseRow | None
    # What the microarchitectures did in the cases that all of them ran, where each ran others too.
    common: str = ""

    @property
    def moved(self) -> bool:
        return self.kind in (*CHANGES, SPLIT)


def answer_of(finding: Finding, table: ComparisonTable) -> FirstWords:
    """`finding` was read with its verdicts; no query."""
    by_uarch = _by_uarch(table)
    return FirstWords(
        kind=finding.kind,
        sentence=finding.headline,
        chips=strip(finding.verdicts.all(), by_uarch, whole=not table.unshown),
        why=why(finding, {machine.machine: machine.uarch for machine in table.machines}),
        worst=_worst(by_uarch, {row.uarch.name: row for row in finding.verdicts.all()}),
        again=_to_run_again(table.rows),
        common=in_common(table),
    )


def _by_uarch(table: ComparisonTable) -> dict[str, list[Comparison]]:
    found: dict[str, list[Comparison]] = {}
    for row in table.rows:
        for machine, cell in zip(table.machines, row.cells, strict=True):
            if cell is not None:
                found.setdefault(machine.uarch, []).append(cell)
    return found


def _down_to(visible: Sequence[float | None]) -> str:
    """How small a change would have been seen, from what would have been in each cell; None: nobody knows."""
    seen = sorted(mde for mde in visible if mde is not None)
    if not seen:
        return ""
    silent = len(visible) - len(seen)
    half, worst = seen_effect(statistics.median_low(seen)), seen_effect(seen[-1])
    if silent:
        return f"down to {worst} on {len(seen)} of them, not known of {silent}"
    return f"down to {worst}" if half == worst else f"down to {half} on half of them, {worst} in the noisiest"


_WORDS = {
    Verdict.REGRESSED: "slower",
    Verdict.IMPROVED: "faster",
    Verdict.UNCHANGED: "no change",
    Verdict.INCONCLUSIVE: "not told",
}


def strip(
    verdicts: Iterable[FindingVerdict],
    by_uarch: Mapping[str, Sequence[Comparison]] | None = None,
    *,
    whole: bool = True,
) -> tuple[StripChip, ...]:
    """Without cells the chips tell what the vector alone knows; not `whole`: what was counted is not all."""
    made = [_chip(row, (by_uarch or {}).get(row.uarch.name, []), whole=whole) for row in verdicts]
    return tuple(sorted(made, key=lambda chip: (VERDICT_ORDER.index(chip.verdict), chip.uarch)))


def _chip(row: FindingVerdict, cells: Sequence[Comparison], *, whole: bool) -> StripChip:
    word = row.verdict
    if row.verdict == Verdict.UNCHANGED:
        word = "no change, with holes" if row.untold else "no change"
    elif row.comparison is None:
        word = "not measured"
    counts = _counts_told(row) or _counts(cells, whole=whole)
    return StripChip(row.uarch.name, row.verdict, word, _sizes(row, cells, whole=whole), counts, row.reason)


def _counts_told(row: FindingVerdict) -> str:
    """Where nothing moved the vector knows how many cells were told, each once whatever machines measured it."""
    total = row.told + row.untold
    if not total or row.verdict in (*CHANGES, SPLIT):
        return ""
    if not (row.told and row.untold):
        return "1 cell" if total == 1 else f"all {total} cells"
    return f"{row.told} {_WORDS[Verdict.UNCHANGED]}, {row.untold} {_WORDS[Verdict.INCONCLUSIVE]}, of {total} cells"


def _sizes(row: FindingVerdict, cells: Sequence[Comparison], *, whole: bool) -> str:
    """Of a split both directions, of no change what would have been seen."""
    if row.verdict in (*CHANGES, SPLIT):
        told = told_of(row, cells)
        return ", ".join(as_speed(cell.ratio, cell.metric.better) for cell in told if cell.ratio is not None)
    calm = [cell.mde for cell in cells if cell.verdict == Verdict.UNCHANGED] if whole else []
    return _down_to(calm or [row.mde])


def told_of(row: FindingVerdict, cells: Sequence[Comparison]) -> list[Comparison]:
    """The cells that speak for a change: that of the verdict itself, which the headline names; of a split the largest
    of each direction.
    """
    if row.verdict != SPLIT and row.comparison is not None:
        return [row.comparison]
    return [cell for change in CHANGES if (cell := largest(cells, change)) is not None]


def _counts(cells: Sequence[Comparison], *, whole: bool) -> str:
    counts = Counter(cell.verdict for cell in cells)
    told = [f"{counts[verdict]} {_WORDS[verdict]}" for verdict in _WORDS if counts[verdict]]
    if not told:
        return ""
    if not whole:
        return f"{', '.join(told)} and more"
    if len(cells) == 1:
        return "1 cell"
    return f"all {len(cells)} cells" if len(told) == 1 else f"{', '.join(told)}, of {len(cells)} cells"


def largest(cells: Iterable[Comparison], verdict: str) -> Comparison | None:
    return max((cell for cell in cells if cell.verdict == verdict), key=movement, default=None)


def movement(cell: Comparison) -> float:
    """How far from no change, in either direction; -1 where there is no ratio."""
    return abs(math.log(cell.ratio)) if cell.ratio and cell.ratio > 0 else -1.0


def _worst(
    by_uarch: Mapping[str, Sequence[Comparison]], verdicts: Mapping[str, FindingVerdict]
) -> tuple[WorstCase, ...]:
    """What got slower most on each microarchitecture and what got faster most; where nothing did, what moved most."""
    chosen: list[tuple[str, Comparison]] = []
    for uarch, cells in by_uarch.items():
        row = verdicts.get(uarch)
        spoken = {cell.pk for cell in told_of(row, cells)} if row is not None else set()
        moved = [cell for cell in cells if cell.pk in spoken and cell.verdict in CHANGES]
        moved = moved or [cell for change in CHANGES if (cell := largest(cells, change)) is not None]
        chosen += [(uarch, cell) for cell in moved or [max(cells, key=movement)]]
    chosen.sort(key=lambda one: VERDICT_ORDER.index(one[1].verdict))
    rows = lines([cell for _uarch, cell in chosen])
    return tuple(
        WorstCase(uarch, line, as_speed(cell.ratio, cell.metric.better) if cell.ratio is not None else "")
        for (uarch, cell), line in zip(chosen, rows, strict=True)
    )


def _to_run_again(rows: Sequence[CaseRow]) -> CaseRow | None:
    """What got slower most; else what got faster most; else any."""
    for verdict in CHANGES:
        sizes = {n: movement(cell) for n, row in enumerate(rows) if (cell := largest(_heard(row), verdict)) is not None}
        if sizes:
            return rows[max(sizes, key=lambda number: sizes[number])]
    return rows[0] if rows else None


def _heard(row: CaseRow) -> list[Comparison]:
    return [cell for cell in row.cells if cell is not None]


_SEPARATED = (Outcome.ONE, Outcome.SEVERAL)
_MOST_ALIKE = 2


def why(finding: Finding, uarchs: Mapping[str, str]) -> str:
    """The explanation that chance finds most seldom, as what it is: something that fits."""
    if finding.kind in (Finding.Kind.UNCHANGED, Finding.Kind.INCONCLUSIVE):
        return ""
    told = [row for row in finding.explanations if row.get("outcome") in _SEPARATED and row.get("conditions")]
    if told:
        return _fits(min(told, key=_chance), uarchs)
    if any(row.get("outcome") == Outcome.NONE for row in finding.explanations):
        return "Why here and not there is not known: no fact of the machines separates them."
    return ""


def _chance(row: Mapping[str, Any]) -> float:
    chance = row.get("chance")
    return float(chance) if isinstance(chance, int | float) else math.inf


def _fits(row: Mapping[str, Any], uarchs: Mapping[str, str]) -> str:
    facts = " or ".join(row["conditions"])
    alike = row.get("alike") or []
    if alike:
        more = " and others" if len(alike) > _MOST_ALIKE else ""
        facts += f" (or {', '.join(alike[:_MOST_ALIKE])}{more}: no machine here tells them apart)"
    changed, others = (_uarchs(row.get(side) or [], uarchs) for side in ("changed", "others"))
    whom = f", true of {changed}" + (f" and not of {others}" if others else "") if changed else ""
    weight = str(row.get("text", "")).rpartition("; ")[2].rstrip(".")
    return f"Consistent with: {facts}{whom}{_where(row)}. Not proved: {weight}."


def _where(row: Mapping[str, Any]) -> str:
    """It explains these cells, and not the largest of all that stand above it."""
    cells, case = row.get("cells"), row.get("case")
    if not case:
        return ""
    name = f"{row.get('benchmark', '')}/{case} {row.get('metric', '')}".strip()
    return f"; in {cells} cells, as {name}" if isinstance(cells, int) and cells > 1 else f"; in {name}"


def _uarchs(machines: Sequence[str], uarchs: Mapping[str, str]) -> str:
    return ", ".join(dict.fromkeys(uarchs.get(machine, machine) for machine in machines))

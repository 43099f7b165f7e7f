"""What each microarchitecture lost and won: in which cases, and the largest of them with its absolute figures."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from server.reports.composer.told import IMPROVED, MOVED, REGRESSED, SPLIT, ToldCell, ToldFinding
from server.reports.composer.vector_words import by_uarch, directions, largest
from server.reports.composer.wording import (
    boots,
    direction,
    distinct,
    figures,
    movement,
    plain,
    reach_of_size,
    span,
    wrap,
    wrapped,
)

# Nobody reads more parts in a line.
_MOST_PARTS = 3


@dataclass(frozen=True)
class _Worst:
    """`alike` are the cells that moved the same way, of the `judged`; `kind`: of cores, where a machine has several."""

    uarch: str
    cell: ToldCell
    alike: tuple[ToldCell, ...]
    judged: int
    kind: str


def worst_lines(told: ToldFinding, most: int) -> list[str]:
    """Losses and wins of each microarchitecture, and the largest of them with absolute figures; losses first."""
    found = _worst(told)
    losses = [one for one in found if one.cell.verdict == REGRESSED]
    wins = [one for one in found if one.cell.verdict == IMPROVED]
    # However little room there is, what a split won stands beside what it lost.
    kept = losses[: most - bool(wins)] if losses else []
    kept += wins[: most - len(kept)]
    if not kept:
        return []
    alike = {one.cell.boots for one in kept}
    count = boots(kept[0].cell) if len(alike) == 1 else "boots"
    head = wrapped(
        f"Largest change of each: mean +- sd of {count}, base -> patched; robust estimate of the change "
        "[95 % CI], not the ratio of the means:"
    )
    lines = [*head, *(line for one in kept for line in _worst_of(one, with_boots=len(alike) > 1))]
    if len(found) > len(kept):
        lines.append(f"  ... and {len(found) - len(kept)} more on the page")
    return lines


def _worst(told: ToldFinding) -> list[_Worst]:
    of = by_uarch(told.speaking)
    found = []
    for uarch in told.uarchs:
        cells = of.get(uarch.name, [])
        for verdict in directions(uarch) if uarch.verdict in (*MOVED, SPLIT) else ():
            most = largest(cells, verdict)
            if most is not None:
                kind = _kind_of_cores(most)
                beside = [cell for cell in cells if _kind_of_cores(cell) == kind]
                alike = tuple(cell for cell in beside if cell.verdict == verdict and cell.ratio is not None)
                found.append(_Worst(uarch.name, most, alike, len(beside), kind))
    return sorted(found, key=lambda one: (one.cell.verdict == IMPROVED, -movement(one.cell), one.uarch))


def _kind_of_cores(cell: ToldCell) -> str:
    return cell.column.partition("/")[2]


def _worst_of(one: _Worst, *, with_boots: bool) -> list[str]:
    what = f"{figures(one.cell)}, {span(one.cell)}{f', {boots(one.cell)}' if with_boots else ''}"
    return [
        *wrapped(f"{plain(one.uarch)}: {_where(one)}", first="  ", indent="      ", most=2),
        *wrap(what, first="    ", indent="      ", most=2),
        *wrap(f"in {in_full(one.cell)}", first="    ", indent="      ", most=2),
    ]


def _where(one: _Worst) -> str:
    """`slower in all 12 cases: hot (8) 39 to 41 %, cold (4) 9.7 to 15 %`."""
    word = direction(one.cell)
    on = f" on {plain(one.kind)}" if one.kind else ""
    if one.judged == 1:
        return f"{word} in the 1 case that ran{on}"
    alike = len(one.alike)
    of = f"all {one.judged}" if alike == one.judged else f"{alike} of {one.judged}"
    parts = [f"{name}{_counted(cells)} {reach_of_size(cells)}" for name, cells in _parts(one.alike)]
    by = f": {', '.join(parts)}" if parts else f", {reach_of_size(one.alike)}" if alike > 1 else ""
    return f"{word} in {of} cases{on}{by}"


def _counted(cells: Sequence[ToldCell]) -> str:
    return f" ({len(cells)})" if len(cells) > 1 else ""


def _parts(cells: Sequence[ToldCell]) -> list[tuple[str, list[ToldCell]]]:
    """Cells by the one word of their cases that parts them best, or by their benchmarks. May be none."""
    benchmarks = _grouped(cells, [cell.benchmark for cell in cells])
    if len(benchmarks) > 1:
        return benchmarks if len(benchmarks) <= _MOST_PARTS else []
    if len({len(cell.words) for cell in cells}) > 1 or len({cell.metric for cell in cells}) > 1:
        return []
    ways = [_grouped(cells, list(words)) for words in zip(*(cell.words for cell in cells), strict=True)]
    clear = [way for way in ways if 1 < len(way) <= _MOST_PARTS and _lie_apart(way)]
    return min(clear, key=_width, default=[])


def _grouped(cells: Sequence[ToldCell], names: Sequence[str]) -> list[tuple[str, list[ToldCell]]]:
    """What moved most comes first."""
    groups: dict[str, list[ToldCell]] = defaultdict(list)
    for cell, name in zip(cells, names, strict=True):
        groups[plain(name)].append(cell)
    return sorted(groups.items(), key=lambda group: -max(map(movement, group[1])))


def _lie_apart(groups: Sequence[tuple[str, list[ToldCell]]]) -> bool:
    """Whether the least of each moved more than the most of the next."""
    return all(min(map(movement, more)) > max(map(movement, less)) for (_, more), (_, less) in pairwise(groups))


def _width(groups: Sequence[tuple[str, list[ToldCell]]]) -> float:
    return max(max(map(movement, cells)) - min(map(movement, cells)) for _, cells in groups)


def in_full(cell: ToldCell) -> str:
    """folio-copy throughput: folio_copy folio=1M hot; a word that begins with a number says nothing alone."""
    words = list(cell.words)
    if len(cell.parameters) == len(words):
        named = zip(cell.parameters, words, strict=True)
        words = [f"{name}={word}" if word[:1].isdigit() and "=" not in word else word for name, word in named]
    return f"{cell.benchmark} {cell.metric}: {' '.join(words) or cell.case}"


def meaning_lines(told: ToldFinding, most: int) -> list[str]:
    """What words mean that stand in the names of the cases that moved."""
    moved = [cell for cell in told.speaking if cell.verdict in MOVED] or list(told.speaking)
    used = distinct(word for cell in moved for word in (*cell.words, *cell.parameters))
    said = [f"{word}: {meaning}" for word, meaning in told.meanings if word in used]
    while said:
        lines = wrap("; ".join(said), first="  ", indent="  ")
        if len(lines) <= most:
            return lines
        # Half a meaning is none.
        said.pop()
    return []

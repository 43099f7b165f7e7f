"""What a finding says, in a sentence or a line: its class and vector, the worst case of each microarchitecture."""

from collections import defaultdict
from collections.abc import Sequence

from server.core.rounding import seen_effect
from server.reports.composer.told import (
    IMPROVED,
    INCONCLUSIVE,
    MOVED,
    REGRESSED,
    SPLIT,
    UNCHANGED,
    ToldCell,
    ToldFinding,
    ToldUarch,
)
from server.reports.composer.wording import (
    boots,
    direction,
    figures,
    listed,
    magnitude,
    means,
    movement,
    plain,
    seen,
    span,
    speed,
    wrapped,
)

_CLASS = {SPLIT: "Split", REGRESSED: "Regressed", IMPROVED: "Improved"}
# More of them stand in lists, by their direction.
_MOST_PHRASES = 4
_MOST_MEANS = 3
_SAME_CODE = "same code"


def first_sentence(told: ToldFinding) -> str:
    """The class and the vector; of what did not move, what was covered and how well."""
    if told.kind not in _CLASS:
        return all_clear(told)
    return f"{_CLASS[told.kind]}: {vector(told.uarchs, told.speaking, with_means=True)}."


def vector(uarchs: Sequence[ToldUarch], cells: Sequence[ToldCell], *, with_means: bool = False) -> str:
    """Each microarchitecture once: what got slower or faster there, or that nothing did, was told, or was measured.

    `with_means`: beside each change stand the means that it was measured by, where there are few.
    """
    of = by_uarch(cells)
    moved = [uarch for uarch in uarchs if uarch.verdict in (*MOVED, SPLIT)]
    moved.sort(key=lambda uarch: (uarch.verdict == IMPROVED, -_most(of.get(uarch.name, []), uarch), uarch.name))
    with_means = with_means and sum(len(directions(uarch)) for uarch in moved) <= _MOST_MEANS
    phrases = [_phrase(uarch, of.get(uarch.name, []), with_means=with_means) for uarch in moved]
    parts = [", ".join(phrases)] if len(phrases) <= _MOST_PHRASES else _lists(moved, of)
    parts += _still(uarchs, of)
    return "; ".join(part for part in parts if part)


def by_uarch(cells: Sequence[ToldCell]) -> dict[str, list[ToldCell]]:
    found: dict[str, list[ToldCell]] = defaultdict(list)
    for cell in cells:
        found[cell.uarch].append(cell)
    return found


def largest(cells: Sequence[ToldCell], verdict: str) -> ToldCell | None:
    """Of those that moved this way the one that moved most."""
    found = [cell for cell in cells if cell.verdict == verdict and cell.ratio is not None]
    return max(found, key=lambda cell: (movement(cell), cell.case, cell.metric), default=None)


def directions(uarch: ToldUarch) -> tuple[str, ...]:
    return MOVED if uarch.verdict == SPLIT else (uarch.verdict,)


def _most(cells: Sequence[ToldCell], uarch: ToldUarch) -> float:
    first = largest(cells, directions(uarch)[0])
    return movement(first) if first else 0.0


def _phrase(uarch: ToldUarch, cells: Sequence[ToldCell], *, with_means: bool) -> str:
    told = []
    for n, verdict in enumerate(directions(uarch)):
        most = largest(cells, verdict)
        on = "" if n else f" on {plain(uarch.name)}"
        if most is not None:
            beside = f" ({means(most)})" if with_means and means(most) else ""
            told.append(f"{_up_to(cells, verdict)}{speed(most, tenths=True)}{on}{beside}")
        else:
            told.append(f"{verdict}{on}")
    return " and ".join(told)


def _up_to(cells: Sequence[ToldCell], verdict: str) -> str:
    return "up to " if sum(cell.verdict == verdict for cell in cells) > 1 else ""


def _lists(uarchs: Sequence[ToldUarch], of: dict[str, list[ToldCell]]) -> list[str]:
    """Slower on a (up to 41 %), b (12 %); faster on c (up to 2.2x)."""
    lists = []
    for verdict in MOVED:
        cells = [(uarch, largest(of.get(uarch.name, []), verdict)) for uarch in uarchs if verdict in directions(uarch)]
        named = [
            f"{plain(uarch.name)} ({_up_to(of[uarch.name], verdict)}{magnitude(cell, tenths=True)})"
            if cell
            else plain(uarch.name)
            for uarch, cell in cells
        ]
        words = {direction(cell) for _uarch, cell in cells if cell}
        if named:
            word = words.pop() if len(words) == 1 else verdict
            lists.append(f"{word} on {', '.join(named)}")
    return lists


def _still(uarchs: Sequence[ToldUarch], of: dict[str, list[ToldCell]]) -> list[str]:
    calm = [uarch for uarch in uarchs if uarch.verdict == UNCHANGED]
    measured = [uarch.name for uarch in calm if not uarch.same_code]
    effects = [effect for name in measured for effect in _effects(of.get(name, []))]
    parts = []
    if measured:
        visible = f" (would have seen {seen_effect(max(effects))})" if effects else ""
        parts.append(f"no change on {_names(measured)}{visible}")
    if same := [uarch.name for uarch in calm if uarch.same_code]:
        parts.append(f"{_SAME_CODE} on {_names(same)}")
    rest = [uarch for uarch in uarchs if uarch.verdict == INCONCLUSIVE]
    if untold := [uarch.name for uarch in rest if not uarch.missing]:
        parts.append(f"cannot be told on {_names(untold)}")
    if missing := [uarch.name for uarch in rest if uarch.missing]:
        parts.append(f"not measured on {_names(missing)}")
    return parts


def _names(names: Sequence[str]) -> str:
    return ", ".join(map(plain, names))


def all_clear(told: ToldFinding) -> str:
    """No change, where, on how many cells and down to which effect, and how many of them could not be told."""
    if not told.cells:
        return f"No change: {vector(told.uarchs, ())}."
    cells = told.speaking
    calm = [cell for cell in cells if cell.verdict == UNCHANGED]
    unsure = [cell for cell in cells if cell.verdict == INCONCLUSIVE]
    where = _names(sorted({cell.uarch for cell in calm}))
    others = [part for part in _still(told.uarchs, {}) if part.startswith(("same code", "not measured"))]
    if not unsure:
        reach = _seen(calm)
        said = [f"No change on {where}: {_counted(len(cells))}{f', {reach}' if reach else ''}"]
    else:
        within = f" within {seen(effects)}" if (effects := _effects(calm)) else ""
        untold = f"{len(unsure)} could not be told{_below(unsure)} ({_names(sorted({cell.uarch for cell in unsure}))})"
        said = [f"No change on {len(calm)} of {_counted(len(cells))}{within} ({where})", untold]
    return f"{'; '.join([*said, *others])}."


def _counted(count: int) -> str:
    return "1 case" if count == 1 else f"{count} cases"


def _effects(cells: Sequence[ToldCell]) -> list[float]:
    return [cell.mde for cell in cells if cell.mde is not None]


def _seen(cells: Sequence[ToldCell]) -> str:
    effects = _effects(cells)
    return f"would have seen {seen(effects)}" if effects else ""


def _below(unsure: Sequence[ToldCell]) -> str:
    """Of what could not be told the largest change that may hide there."""
    effects = _effects(unsure)
    return f" below {seen_effect(max(effects))}" if effects else ""


def case_of(cell: ToldCell) -> str:
    """folio-copy throughput, DRAM0->DRAM1 1M hot."""
    return f"{cell.benchmark} {cell.metric}, {_case(cell)}"


def _case(cell: ToldCell) -> str:
    return " ".join(cell.words) or cell.case


def one_cell(cell: ToldCell) -> str:
    """What one cell says, moved or not, with its figures."""
    if cell.verdict in MOVED and cell.ratio is not None:
        said = span(cell)
    elif cell.verdict == UNCHANGED:
        said = "no change" + (f", would have seen {seen_effect(cell.mde)}" if cell.mde is not None else "")
    else:
        said = "cannot be told" + (f", would have seen {seen_effect(cell.mde)}" if cell.mde is not None else "")
    return f"{figures(cell)}: {said}, {boots(cell)}"


def coverage_lines(told: ToldFinding, most: int) -> list[str]:
    """For each microarchitecture how many cells were judged how, and down to which effect."""
    of = by_uarch(told.speaking)
    lines = []
    for uarch in told.uarchs:
        cells = of.get(uarch.name, [])
        if not cells:
            continue
        calm = [cell for cell in cells if cell.verdict == UNCHANGED]
        unsure = [cell for cell in cells if cell.verdict == INCONCLUSIVE]
        reach = _seen(calm)
        said = [f"no change in {_counted(len(calm))}{f', {reach}' if reach else ''}"] if calm else []
        said += [f"{_counted(len(unsure))} not told{_below(unsure)}"] if unsure else []
        lines += wrapped(f"{plain(uarch.name)}: {'; '.join(said)}", first="  ", indent="    ", most=2) if said else []
    return lines if len(lines) <= most else [*lines[: most - 1], f"  ... {len(lines) - most + 1} more on the page"]


def untold_sentence(told: ToldFinding) -> str:
    """Where something moved, which cells beside it could not be told."""
    parts = []
    for name, cells in by_uarch(told.speaking).items():
        unsure = [cell for cell in cells if cell.verdict == INCONCLUSIVE]
        if unsure:
            parts.append(f"{len(unsure)} of {_counted(len(cells))} on {plain(name)}{_below(unsure)}")
    return f"Could not be told: {listed(parts, 4)}." if parts else ""

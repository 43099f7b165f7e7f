"""What each look of a sequential design saw, read from the boots in the order in which they ran."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from server.stats.cells import Cell, Comparison, Values
from server.stats.comparison import compare
from server.stats.looks import Level, levels
from server.stats.spending import GAMMA, STEEPEST_GAMMA, information

# A spread needs two boots.
_FEWEST_BOOTS = 2
# With more, single boots are steps of information too small for the grid on which levels are computed.
_MOST_BOOTS = 1000
# Outside of these a look's level cannot be computed to the digits that it needs.
_LEAST_ALPHA, _MOST_ALPHA = 1e-6, 0.4


@dataclass(frozen=True)
class Design:
    """When to look, in boots a side, and how sure to be.

    `alpha` is the two-sided false-alarm rate of all looks together, `gamma` the shape of its spending. `futility` is
    the price of boots: no more are run when the predicted chance of a verdict is below this times the share of the
    budget that is left. Where the minimum effect is zero, `futility_of_difference` is used: "differs" is the easier
    question, and patience with it would cost more boots than it finds changes (python -m bench.sequential).
    """

    looks: tuple[int, ...] = (4, 6, 8, 12, 16)
    alpha: float = 0.05
    gamma: float = GAMMA
    futility: float = 0.14
    futility_of_difference: float = 0.28

    def __post_init__(self) -> None:
        if not _are_looks(self.looks):
            allowed = f"from {_FEWEST_BOOTS} to {_MOST_BOOTS}"
            raise ValueError(f"looks: {self.looks!r} are no tuple of increasing whole numbers of boots {allowed}")
        if not _LEAST_ALPHA <= self.alpha <= _MOST_ALPHA:
            raise ValueError(f"alpha: {self.alpha!r} is no number from {_LEAST_ALPHA:g} to {_MOST_ALPHA:g}")
        if not abs(self.gamma) <= STEEPEST_GAMMA:
            raise ValueError(f"gamma: {self.gamma!r} is no number from -{STEEPEST_GAMMA:g} to {STEEPEST_GAMMA:g}")
        for name, price in (("futility", self.futility), ("futility_of_difference", self.futility_of_difference)):
            if not 0 <= price <= 1:
                raise ValueError(f"{name}: {price!r} is no number from 0 to 1")

    @property
    def budget(self) -> int:
        return self.looks[-1]

    def least_chance(self, cell: Cell, fraction: float) -> float:
        """The chance of a verdict below which the rest of the boots is not worth running."""
        return (1 - fraction) * (self.futility if cell.min_effect > 0 else self.futility_of_difference)


@dataclass(frozen=True)
class Look:
    """One look: the boots it saw, the level it was granted, and the comparison at that level."""

    base: int
    patched: int
    level: Level
    comparison: Comparison


@dataclass(frozen=True)
class _Plan:
    """The boots and levels of a cell's looks."""

    boots: tuple[tuple[int, int], ...]
    levels: tuple[Level, ...]


def with_data(cell: Cell) -> Cell:
    """The cell without the boots that gave no values, which are no information; the others in the order they ran."""
    base, base_positions = _kept(cell.base, cell.base_positions)
    patched, patched_positions = _kept(cell.patched, cell.patched_positions)
    return replace(cell, base=base, patched=patched, base_positions=base_positions, patched_positions=patched_positions)


def looks_of(cells: Sequence[Cell], design: Design, *, ended: bool = False) -> list[tuple[Look, ...]]:
    """For each cell the looks that its boots allow, the first first; none before the design's first look.

    The planned looks are taken again from the first boots of each arm, so that stored boots always give the same
    answer. Between them nothing is decided, except where boots gave no values, so that an arm lags behind its plan:
    there a look is taken at what there is. With `ended` no boots will follow: then the last look takes all boots and
    all that is left of alpha, and fewer boots than the first look's are judged too.
    """
    ready = [with_data(cell) for cell in cells]
    plans = [_plan(*pair, design, ended=ended) for pair in zip(cells, ready, strict=True)]
    seen = _compare_all(ready, plans)
    return [
        tuple(
            Look(base, patched, level, seen[index, number])
            for number, ((base, patched), level) in enumerate(zip(plan.boots, plan.levels, strict=True))
        )
        for index, plan in enumerate(plans)
    ]


def first_boots(cell: Cell, base: int, patched: int) -> Cell:
    """The cell with its first boots only, as many of each arm."""
    if (base, patched) == (len(cell.base), len(cell.patched)):
        return cell
    return replace(
        cell,
        base=cell.base[:base],
        patched=cell.patched[:patched],
        base_positions=None if cell.base_positions is None else cell.base_positions[:base],
        patched_positions=None if cell.patched_positions is None else cell.patched_positions[:patched],
    )


def _plan(cell: Cell, ready: Cell, design: Design, *, ended: bool) -> _Plan:
    """The looks at a cell of which `ready` are the boots that gave values."""
    base, patched = len(ready.base), len(ready.patched)
    lost = len(cell.base) > base or len(cell.patched) > patched
    first = information(design.looks[0], design.looks[0], design.budget)
    reached = design.looks if lost or ended else tuple(look for look in design.looks if look <= min(base, patched))
    # The last planned look takes boots beyond the budget too: nothing that was measured is thrown away.
    planned = [(min(look, base), min(look, patched)) for look in reached if look < design.budget]
    whole = [(base, patched)] if lost or ended or design.budget in reached else []
    boots = dict.fromkeys([*planned, *whole])
    known = {pair: information(*pair, design.budget) for pair in boots}
    chosen = [pair for pair in boots if min(pair) >= _FEWEST_BOOTS and (ended or known[pair] >= first)]
    fractions = tuple(known[pair] for pair in chosen)
    return _Plan(tuple(chosen), levels(fractions, design.alpha, design.gamma, ended=ended))


def _compare_all(cells: Sequence[Cell], plans: Sequence[_Plan]) -> dict[tuple[int, int], Comparison]:
    """By cell and look; one call for all looks of one level."""
    groups: dict[float, list[tuple[int, int]]] = defaultdict(list)
    for index, plan in enumerate(plans):
        for number, level in enumerate(plan.levels):
            groups[level.nominal].append((index, number))
    seen: dict[tuple[int, int], Comparison] = {}
    for nominal, keys in groups.items():
        early = [first_boots(cells[index], *plans[index].boots[number]) for index, number in keys]
        seen.update(zip(keys, compare(early, alpha=nominal), strict=True))
    return seen


def _are_looks(looks: object) -> bool:
    if not (isinstance(looks, tuple) and looks and all(type(look) is int for look in looks)):
        return False
    return looks[0] >= _FEWEST_BOOTS and looks[-1] <= _MOST_BOOTS and all(a < b for a, b in pairwise(looks))


def _kept(boots: Sequence[Values], positions: Sequence[int] | None) -> tuple[list[Values], list[int] | None]:
    kept = [index for index, values in enumerate(boots) if len(values)]
    if positions is None:
        return [boots[index] for index in kept], None
    kept.sort(key=lambda index: positions[index])
    return [boots[index] for index in kept], [positions[index] for index in kept]

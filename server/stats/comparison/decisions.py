"""The sequential design: what each of its looks saw, whether more boots can decide a cell, and how many to run next."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

import numpy as np

from server.stats.cells import FEWEST_BOOTS, Cell, CellComparison, Floats, NoVerdict, StatisticalVerdict, Values
from server.stats.comparison.verdicts import compare
from server.stats.functions import special
from server.stats.levels import GAMMA, STEEPEST_GAMMA, Level, information, levels, overall_p

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
    question, and patience with it would cost more boots than it finds changes (python -m bench.statistics.sequential).
    """

    looks: tuple[int, ...] = (4, 6, 8, 12, 16)
    alpha: float = 0.05
    gamma: float = GAMMA
    futility: float = 0.14
    futility_of_difference: float = 0.28

    def __post_init__(self) -> None:
        if not _are_looks(self.looks):
            allowed = f"from {FEWEST_BOOTS} to {_MOST_BOOTS}"
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
    comparison: CellComparison


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
    chosen = [pair for pair in boots if min(pair) >= FEWEST_BOOTS and (ended or known[pair] >= first)]
    fractions = tuple(known[pair] for pair in chosen)
    return _Plan(tuple(chosen), levels(fractions, design.alpha, design.gamma, ended=ended))


def _compare_all(cells: Sequence[Cell], plans: Sequence[_Plan]) -> dict[tuple[int, int], CellComparison]:
    """By cell and look; one call for all looks of one level."""
    groups: dict[float, list[tuple[int, int]]] = defaultdict(list)
    for index, plan in enumerate(plans):
        for number, level in enumerate(plan.levels):
            groups[level.nominal].append((index, number))
    seen: dict[tuple[int, int], CellComparison] = {}
    for nominal, keys in groups.items():
        early = [first_boots(cells[index], *plans[index].boots[number]) for index, number in keys]
        seen.update(zip(keys, compare(early, alpha=nominal), strict=True))
    return seen


def _are_looks(looks: object) -> bool:
    if not (isinstance(looks, tuple) and looks and all(type(look) is int for look in looks)):
        return False
    return looks[0] >= FEWEST_BOOTS and looks[-1] <= _MOST_BOOTS and all(a < b for a, b in pairwise(looks))


def _kept(boots: Sequence[Values], positions: Sequence[int] | None) -> tuple[list[Values], list[int] | None]:
    kept = [index for index, values in enumerate(boots) if len(values)]
    if positions is None:
        return [boots[index] for index in kept], None
    kept.sort(key=lambda index: positions[index])
    return [boots[index] for index in kept], [positions[index] for index in kept]


# The level of the interval from which a standard error is read back: at about one standard error the t quantile
# hardly depends on the degrees of freedom, which a comparison does not tell.
_ONE_ERROR = 1 / 3


@dataclass(frozen=True)
class Prospect:
    """The predicted chance of a verdict within the budget, and the least that is worth the boots left."""

    chance: float
    least: float

    @property
    def pays(self) -> bool:
        return self.chance >= self.least


def prospects(cells: Sequence[Cell], looks: Sequence[Look], design: Design) -> list[Prospect]:
    """What further boots may bring to cells that are seen now at `looks`; see `chances`."""
    least = [design.least_chance(cell, look.level.fraction) for cell, look in zip(cells, looks, strict=True)]
    return [Prospect(*pair) for pair in zip(chances(cells, looks, design), least, strict=True)]


def chances(cells: Sequence[Cell], looks: Sequence[Look], design: Design) -> list[float]:
    """For each cell, seen now at `looks`, the chance that the design's last look gives a verdict.

    The estimate at the last look is predicted from the one at this look, which carries the share t of the information
    and has the standard error s: around it, with variance s^2 (1 - t) (predictive power under a flat prior:
    Spiegelhalter, Freedman and Blackburn, Controlled Clinical Trials 7, 1986), in t's distribution because s is
    estimated. There the half width will be about s sqrt(t) times the t quantile of the last look's level. Cells must
    have a comparison with an interval, at less than the whole information.
    """
    if not looks:
        return []
    freedom = np.array([look.base + look.patched - 2 for look in looks], dtype=np.float64)
    share = np.array([look.level.fraction for look in looks])
    centre, error = _estimates(cells, freedom)
    last = levels(tuple(look / design.budget for look in design.looks), design.alpha, design.gamma)[-1]
    reach = error * np.sqrt(share) * special.stdtrit(2 * design.budget - 2, 1 - last.nominal / 2)
    limit = np.log1p([cell.min_effect for cell in cells])
    spread = error * np.sqrt(1 - share)

    def below(edge: Floats) -> Floats:
        return np.asarray(special.stdtr(freedom, (edge - centre) / spread))

    change = below(-limit - reach) + 1 - below(limit + reach)
    inside = np.maximum(limit - reach, 0.0)
    return list(np.minimum(change + below(inside) - below(-inside), 1.0).tolist())


def _estimates(cells: Sequence[Cell], freedom: Floats) -> tuple[Floats, Floats]:
    """The logarithms of the ratios, and their standard errors."""
    found = compare(cells, alpha=_ONE_ERROR)
    low = np.log([result.ratio_low or 1.0 for result in found])
    high = np.log([result.ratio_high or 1.0 for result in found])
    # An interval of no width would divide by zero; so narrow a one decides anyway.
    half = np.maximum((high - low) / 2, np.finfo(np.float64).eps)
    return (low + high) / 2, half / special.stdtrit(freedom, 1 - _ONE_ERROR / 2)


# Boots that give no values are run again, until this many times the budget were run: by then the kernel or the
# benchmark is broken on this machine, and more boots would go on for ever.
MOST_ATTEMPTS = 2
_NO_VALUES = "boots gave no values"
# A smaller predicted chance is written as "less than 1 %".
_SMALL_CHANCE = 0.01


class State(StrEnum):
    DECIDED = "decided"
    OPEN = "open"  # more boots may decide it
    UNDECIDABLE = "undecidable"  # not within this budget, or not from these values


@dataclass(frozen=True)
class CellProgress:
    """Where one cell stands in its design.

    `verdict` is that of the last look that decided, `decided_at`, and `inconclusive` when none did. `differs` says
    whether "no difference at all" is rejected at the design's alpha; `p_value` is the p-value of that over all looks,
    at most alpha exactly when it is. `chance` is the predicted chance of a verdict within the budget, where that was
    the question.
    """

    state: State
    verdict: StatisticalVerdict
    reason: str
    looks: tuple[Look, ...]
    decided_at: Look | None = None
    differs: bool = False
    p_value: float | None = None
    chance: float | None = None

    @property
    def reason_code(self) -> str:
        """One of `NoVerdict`; empty with a verdict."""
        if self.decided_at is not None:
            return self.decided_at.comparison.reason_code
        if not self.looks or self.looks[-1].comparison.reason_code == NoVerdict.NO_DATA:
            return NoVerdict.NO_DATA
        return NoVerdict.NOT_DECIDABLE if self.state is State.UNDECIDABLE else self.looks[-1].comparison.reason_code

    @property
    def comparison(self) -> CellComparison | None:
        """The comparison of the look that decided, or else of the last one, as a family of cells needs it.

        Its p-value is that of the whole design, not of the one look; its interval is the look's. None before a look.
        """
        look = self.decided_at or (self.looks[-1] if self.looks else None)
        if look is None:
            return None
        judged = look.comparison._replace(verdict=self.verdict, p_value=self.p_value)
        return judged._replace(reason=self.reason, reason_code=self.reason_code)


def judge_cells(cells: Sequence[Cell], design: Design, *, ended: bool = False) -> list[CellProgress]:
    """One answer for each cell, from its boots alone; data never raise.

    A verdict is the interval of a look, at that look's level, against the minimum effect: wholly beyond or wholly
    inside. Such intervals hold the true ratio at all looks together with probability 1 - alpha (repeated confidence
    intervals: Jennison and Turnbull, J. R. Statist. Soc. B 51, 1989), so both kinds of verdict keep their error rates.
    """
    taken = looks_of(cells, design, ended=ended)
    unsure = [index for index, looks in enumerate(taken) if not ended and _is_unsure(looks)]
    last = [taken[index][-1] for index in unsure]
    seen = [first_boots(with_data(cells[i]), look.base, look.patched) for i, look in zip(unsure, last, strict=True)]
    predicted = dict(zip(unsure, prospects(seen, last, design), strict=True))
    return [
        _progress(cell, looks, design, predicted.get(index), ended=ended)
        for index, (cell, looks) in enumerate(zip(cells, taken, strict=True))
    ]


def _is_unsure(looks: tuple[Look, ...]) -> bool:
    """Judged, not decided, and with budget left: the chance of a verdict is worth knowing."""
    if not looks or _deciding(looks) is not None:
        return False
    return looks[-1].comparison.p_value is not None and looks[-1].level.fraction < 1


def _deciding(looks: Sequence[Look]) -> Look | None:
    """The last look that decided: undecided later ones take nothing back, but one that decides otherwise saw more."""
    deciding = [look for look in looks if look.comparison.verdict is not StatisticalVerdict.INCONCLUSIVE]
    return deciding[-1] if deciding else None


def _progress(
    cell: Cell, looks: tuple[Look, ...], design: Design, prospect: Prospect | None, *, ended: bool
) -> CellProgress:
    deciding = _deciding(looks)
    state, reason = _state(looks, deciding, design, prospect, ended=ended)
    if state is State.OPEN and _gives_no_values(cell, design):
        state, reason = State.UNDECIDABLE, f"{reason}; {_NO_VALUES}" if looks else _NO_VALUES
    return CellProgress(
        state=state,
        verdict=StatisticalVerdict.INCONCLUSIVE if deciding is None else deciding.comparison.verdict,
        reason=reason,
        looks=looks,
        decided_at=deciding,
        differs=any(_rejects(look) for look in looks),
        p_value=_overall(looks, design.alpha),
        chance=None if prospect is None else prospect.chance,
    )


def _state(
    looks: tuple[Look, ...], deciding: Look | None, design: Design, prospect: Prospect | None, *, ended: bool
) -> tuple[State, str]:
    if deciding is not None:
        return State.DECIDED, deciding.comparison.reason
    if not looks:
        waits = State.OPEN, f"the first look is at {design.looks[0]} boots a side"
        return (State.UNDECIDABLE, "fewer than 2 boots a side gave values, and the session ended") if ended else waits
    end = _end(looks[-1], design, prospect, ended=ended)
    reason = looks[-1].comparison.reason
    return (State.OPEN, reason) if end is None else (State.UNDECIDABLE, "; ".join(filter(None, [reason, end])))


def _end(last: Look, design: Design, prospect: Prospect | None, *, ended: bool) -> str | None:
    """Why no more boots should be run for an undecided cell; None when they should, empty when its values say so."""
    if last.comparison.p_value is None:
        return ""
    if ended:
        return "the session ended"
    if last.level.fraction >= 1:
        return "its boots are spent"
    if prospect is not None and not prospect.pays:
        few = prospect.chance < _SMALL_CHANCE
        chance = f"less than {100 * _SMALL_CHANCE:.0f} %" if few else f"only {100 * prospect.chance:.0f} %"
        return f"at {design.budget} boots a side a verdict has a chance of {chance}"
    return None


def _gives_no_values(cell: Cell, design: Design) -> bool:
    """Whether an arm was booted far more often than planned, and still has fewer boots with values than planned."""
    ready = with_data(cell)
    return any(
        len(run) >= MOST_ATTEMPTS * design.budget and len(useful) < design.budget
        for run, useful in ((cell.base, ready.base), (cell.patched, ready.patched))
    )


def _rejects(look: Look) -> bool:
    return look.comparison.p_value is not None and look.comparison.p_value <= look.level.nominal


def _overall(looks: tuple[Look, ...], alpha: float) -> float | None:
    """The p-value at the first look that rejected "no difference", or else at the last one that has any."""
    tested = [number for number, look in enumerate(looks) if look.comparison.p_value is not None]
    if not tested:
        return None
    chosen = next((number for number in tested if _rejects(looks[number])), tested[-1])
    nominal = looks[chosen].comparison.p_value
    return None if nominal is None else overall_p(tuple(look.level for look in looks[: chosen + 1]), nominal, alpha)


@dataclass(frozen=True)
class Progress:
    """Where a session stands: one entry for each cell, and the boots to run next, 0 and 0 when it may stop.

    `open_cells` are the indices of the cells that still need boots.
    """

    cells: tuple[CellProgress, ...]
    open_cells: tuple[int, ...]
    base_boots: int
    patched_boots: int

    @property
    def finished(self) -> bool:
        return not self.open_cells


def next_step(cells: Sequence[Cell], design: Design | None = None, *, ended: bool = False) -> Progress:
    """What the boots so far decide, and how many to run before the next look.

    The cells are those of one session: all share its boots. Values stand in the order in which the boots ran. The
    answer depends on the cells and the design only, so stored results can be judged again. `ended` says that no boots
    will follow, whatever is open: then what is left of alpha is used for a last look.
    """
    design = design or Design()
    judged = judge_cells(cells, design, ended=ended)
    still_open = [index for index, progress in enumerate(judged) if progress.state is State.OPEN]
    wanted = [_missing(cells[index], design) for index in still_open]
    return Progress(
        cells=tuple(judged),
        open_cells=tuple(still_open),
        base_boots=max((base for base, _ in wanted), default=0),
        patched_boots=max((patched for _, patched in wanted), default=0),
    )


def _missing(cell: Cell, design: Design) -> tuple[int, int]:
    """The boots of each arm until its next planned look."""
    ready = with_data(cell)
    base, patched = len(ready.base), len(ready.patched)
    look = next((look for look in design.looks if look > min(base, patched)), design.budget)
    return max(0, look - base), max(0, look - patched)

"""After each batch of boots: whether a cell is decided, worth more boots, or beyond its budget."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from server.stats.cells import Cell, CellComparison, NoVerdict, StatisticalVerdict
from server.stats.comparison.looks import Design, Look, Prospect, first_boots, looks_of, prospects, with_data
from server.stats.levels import overall_p

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
        judged = replace(look.comparison, verdict=self.verdict, p_value=self.p_value)
        return replace(judged, reason=self.reason, reason_code=self.reason_code)


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

"""The sequential design of a session: after each batch of boots, what is decided and what to run next."""

from collections.abc import Sequence
from dataclasses import dataclass

from server.stats.cells import Cell
from server.stats.evidence import Design, Look, with_data
from server.stats.stopping import CellProgress, State, judge_cells

__all__ = ["CellProgress", "Design", "Look", "Progress", "State", "next_step"]


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

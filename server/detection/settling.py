"""Changes that are to be seen once more before they are claimed."""

from collections.abc import Sequence

from server.detection.cells import MeasuredCell
from server.detection.judging import design_of
from server.detection.models.comparisons import CHANGES
from server.stats.evidence import with_data
from server.stats.stopping import CellProgress

# Where boots alternate between two modes, by chance all boots of one kernel lie in the one and all of the other in the
# other: at 4 boots a side in one session of 128, at 6 in one of 2048. No interval and no p-value knows; more boots do.
_TELLING_BOOTS = 6


def is_settled(progress: CellProgress) -> bool:
    """Whether more boots may be spared: it claims no change, or one that the last look shows, of boots enough.

    The last look that there can be has the word in any case.
    """
    if progress.verdict.value not in CHANGES or progress.looks[-1].level.fraction >= 1:
        return True
    last = progress.looks[-1]
    return progress.decided_at == last and min(last.base, last.patched) >= _TELLING_BOOTS


def boots_to_next_look(cells: Sequence[MeasuredCell]) -> tuple[int, int]:
    """Boots of the base and of the patched kernel until each of these cells has its next planned look."""
    wanted = [_missing(cell) for cell in cells]
    return max((base for base, _ in wanted), default=0), max((patched for _, patched in wanted), default=0)


def _missing(cell: MeasuredCell) -> tuple[int, int]:
    ready, design = with_data(cell.values), design_of(cell.session)
    base, patched = len(ready.base), len(ready.patched)
    look = next((look for look in design.looks if look > min(base, patched)), design.budget)
    return max(0, look - base), max(0, look - patched)

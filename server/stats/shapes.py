"""Cells of one shape, with as many boots and runs in the same order, are computed together as one array."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

import numpy as np
import numpy.typing as npt

from server.stats.cells import Cell, refuse_words

Floats = npt.NDArray[np.float64]
FEWEST_BOOTS = 2


@dataclass(frozen=True)
class Shape:
    """The runs of each boot that gave values, and the rank of each boot in the session, base boots first.

    `order` is None where positions are not known, or where two boots claim the same one.
    """

    base_runs: tuple[int, ...]
    patched_runs: tuple[int, ...]
    order: tuple[int, ...] | None = None

    @property
    def boots(self) -> tuple[int, int]:
        return len(self.base_runs), len(self.patched_runs)

    @property
    def runs(self) -> npt.NDArray[np.int64]:
        return np.array(self.base_runs + self.patched_runs, dtype=np.int64)

    @property
    def arms(self) -> tuple[slice, slice]:
        """Where the boots of base and of patched stand among all boots."""
        base = len(self.base_runs)
        return slice(0, base), slice(base, base + len(self.patched_runs))


def shape_of(cell: Cell) -> Shape:
    positions = None
    if cell.base_positions is not None and cell.patched_positions is not None:
        positions = tuple(cell.base_positions), tuple(cell.patched_positions)
    return _shape(tuple(map(len, cell.base)), tuple(map(len, cell.patched)), positions)


@lru_cache(maxsize=1024)
def _shape(
    base: tuple[int, ...], patched: tuple[int, ...], positions: tuple[tuple[int, ...], tuple[int, ...]] | None
) -> Shape:
    order = None
    if positions is not None:
        kept = [place for place, runs in zip(positions[0] + positions[1], base + patched, strict=True) if runs]
        ranks = {place: rank for rank, place in enumerate(sorted(set(kept)))}
        order = tuple(ranks[place] for place in kept) if len(ranks) == len(kept) else None
    return Shape(tuple(filter(None, base)), tuple(filter(None, patched)), order)


def padded(cells: Iterable[Cell], shape: Shape) -> Floats:
    """The values of cells of this shape as (cells, boots, runs); boots with fewer runs are filled up with NaN.

    A ValueError names the cell of which a value is no number.
    """
    runs, cells = shape.runs, list(cells)
    flat = [list(chain.from_iterable(chain(cell.base, cell.patched))) for cell in cells]
    try:
        values = np.array(flat, dtype=np.float64).reshape(len(flat), int(runs.sum()))
    except (TypeError, ValueError, OverflowError):
        for cell in cells:
            refuse_words(cell)
        raise
    filled = np.full((len(flat), len(runs), int(runs.max(initial=0))), np.nan)
    filled[:, np.arange(filled.shape[2]) < runs[:, None]] = values
    return filled


def grouped(cells: Sequence[Cell]) -> dict[Shape, list[int]]:
    """Which cells have which shape, by their places in the sequence; ValueError where a boot is no row of values."""
    groups: dict[Shape, list[int]] = {}
    for place, cell in enumerate(cells):
        try:
            shape = shape_of(cell)
        except TypeError:
            refuse_words(cell)
            raise
        groups.setdefault(shape, []).append(place)
    return groups

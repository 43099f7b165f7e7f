"""What goes into a comparison and what comes out; cells of one shape stand together as one array."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import chain
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

Values = Sequence[float] | npt.NDArray[np.float64]
Better = Literal["lower", "higher"]
# As much of what is no number stands in an error.
_SHOWN = 60


class StatisticalVerdict(StrEnum):
    IMPROVED = "improved"
    REGRESSED = "regressed"
    UNCHANGED = "unchanged"
    INCONCLUSIVE = "inconclusive"


class NoVerdict(StrEnum):
    """Why a cell has no verdict."""

    NO_DATA = "no-data"  # a kernel gave too few values
    UNDECIDED = "undecided"  # the interval allows no verdict
    NOT_DECIDABLE = "not-decidable"  # more boots would not decide it
    NOT_SEEN_AT_LAST = "not-seen-at-last"  # an early look showed a change, all boots do not
    ADJUSTED = "adjusted"  # among so many cells it may be chance


class Flag(StrEnum):
    """What a reader should know beside the verdict."""

    TOO_FEW_BOOTS = "too-few-boots"  # an arm has no spread to speak of: not judged
    FEW_BOOTS = "few-boots"  # judged, but with wide intervals
    ZERO_SPREAD = "zero-spread"  # all boots of an arm gave the same value
    UNEQUAL_SPREAD = "unequal-spread"  # the arms were not pooled
    TREND = "trend"  # values drift over the session; the drift was taken out
    OUTLYING_BOOT = "outlying-boot"  # one boot is far from the others and counts little
    BIMODAL = "bimodal"  # the boots fall into two groups
    EXACT_VARIES = "exact-varies"  # a count that should not vary did, and was judged like any other value
    NOT_FINITE = "not-finite"
    NON_POSITIVE = "non-positive"


@dataclass(frozen=True)
class Cell:
    """The values of one (machine, case, metric, core type): for each arm its boots, for each boot its kept values.

    `min_effect` is the smallest change worth a verdict, as a fraction. `resolution` is the smallest step between two
    values in the metric's unit, 0 when unknown. Positions, when given, say in which order the boots ran. `exact` marks
    a metric that does not vary from run to run, as counted instructions. `name` is used in errors.
    """

    base: Sequence[Values]
    patched: Sequence[Values]
    better: Better
    min_effect: float
    resolution: float = 0.0
    base_positions: Sequence[int] | None = None
    patched_positions: Sequence[int] | None = None
    exact: bool = False
    name: str = ""

    def __post_init__(self) -> None:
        problem = self._problem()
        if problem:
            raise ValueError(f"{self.name}: {problem}" if self.name else problem)

    def _problem(self) -> str:
        if self.better not in ("lower", "higher"):
            return f"better: {self.better!r} is neither lower nor higher"
        for name, value in (("min_effect", self.min_effect), ("resolution", self.resolution)):
            if not 0 <= value < math.inf:
                return f"{name}: {value!r} is no number from 0"
        if (self.base_positions is None) != (self.patched_positions is None):
            return "positions are given for both arms or for none"
        for boots, positions in ((self.base, self.base_positions), (self.patched, self.patched_positions)):
            if positions is not None and len(positions) != len(boots):
                return f"{len(positions)} positions for {len(boots)} boots"
        return ""


def refuse_words(cell: Cell) -> None:
    """Raise a ValueError that names the cell and the arm if a boot is not a plain row of numbers that floats can hold.

    Numbers that make no sense, as NaN, are data and are not refused. Looking at each boot is slow, so this is for cells
    of which it is known that something is wrong.
    """
    for arm, boots in (("base", cell.base), ("patched", cell.patched)):
        for values in boots:
            try:
                plain = np.asarray(values, dtype=np.float64).ndim == 1
            except (TypeError, ValueError, OverflowError):
                plain = False
            if not plain:
                name = f"{cell.name}: " if cell.name else ""
                raise ValueError(f"{name}{arm} kernel: the boot {str(values)[:_SHOWN]} is no row of numbers")


class Arm(NamedTuple):
    """The boots of one kernel; mean and standard deviation are those of the boots' values, in the metric's unit."""

    boots: int
    mean: float | None = None
    sd: float | None = None


class CellComparison(NamedTuple):
    """Base against patched in one cell. What could not be computed is None, and `reason` says why.

    `p_value` belongs to the interval of `ratio`; `p_rank` stands beside it and decides nothing.
    """

    verdict: StatisticalVerdict
    reason: str
    flags: tuple[Flag, ...]
    base: Arm
    patched: Arm
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    p_value: float | None = None
    p_rank: float | None = None
    mde: float | None = None
    p_adjusted: float | None = None
    family_size: int = 0
    reason_code: str = ""


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
    flat = chain.from_iterable(chain.from_iterable(chain(cell.base, cell.patched) for cell in cells))
    try:
        each = int(runs.sum())
        values = np.fromiter(flat, np.float64, len(cells) * each).reshape(len(cells), each)
    except (TypeError, ValueError, OverflowError):
        for cell in cells:
            refuse_words(cell)
        raise
    filled = np.full((len(cells), len(runs), int(runs.max(initial=0))), np.nan)
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

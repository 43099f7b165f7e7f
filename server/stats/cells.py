"""What goes into a comparison and what comes out."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

import numpy as np
import numpy.typing as npt

Values = Sequence[float] | npt.NDArray[np.float64]
Better = Literal["lower", "higher"]
# As much of what is no number stands in an error.
_SHOWN = 60


class Verdict(StrEnum):
    IMPROVED = "improved"
    REGRESSED = "regressed"
    UNCHANGED = "unchanged"
    INCONCLUSIVE = "inconclusive"


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


@dataclass(frozen=True, slots=True)
class Arm:
    """The boots of one kernel; mean and standard deviation are those of the boots' values, in the metric's unit."""

    boots: int
    mean: float | None = None
    sd: float | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Base against patched in one cell. What could not be computed is None, and `reason` says why.

    `p_value` belongs to the interval of `ratio`; `p_rank` stands beside it and decides nothing.
    """

    verdict: Verdict
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

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
    TREND = "trend"  # values drift over the session
    NOT_FINITE = "not-finite"
    NON_POSITIVE = "non-positive"


@dataclass(frozen=True)
class Cell:
    """The values of one (machine, case, metric, core type): for each arm its boots, for each boot its kept values.

    `min_effect` is the smallest change worth a verdict, as a fraction. `resolution` is the smallest step between two
    values in the metric's unit, 0 when unknown. Positions, when given, say in which order the boots ran.
    """

    base: Sequence[Values]
    patched: Sequence[Values]
    better: Better
    min_effect: float
    resolution: float = 0.0
    base_positions: Sequence[int] | None = None
    patched_positions: Sequence[int] | None = None

    def __post_init__(self) -> None:
        if self.better not in ("lower", "higher"):
            raise ValueError(f"better: {self.better!r} is neither lower nor higher")
        for name, value in (("min_effect", self.min_effect), ("resolution", self.resolution)):
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name}: {value!r} is no number from 0")
        if (self.base_positions is None) != (self.patched_positions is None):
            raise ValueError("positions are given for both arms or for none")
        for boots, positions in ((self.base, self.base_positions), (self.patched, self.patched_positions)):
            if positions is not None and len(positions) != len(boots):
                raise ValueError(f"{len(positions)} positions for {len(boots)} boots")


@dataclass(frozen=True)
class Arm:
    """The boots of one kernel; mean and standard deviation are those of the boots' values, in the metric's unit."""

    boots: int
    mean: float | None = None
    sd: float | None = None


@dataclass(frozen=True)
class Comparison:
    """Base against patched in one cell. What could not be computed is None, and `reason` says why."""

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

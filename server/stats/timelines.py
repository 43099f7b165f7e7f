"""What change points are looked for in: one value per measured revision, of one machine and one benchmark."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Timeline:
    """One value per measured revision, in the order of the revisions.

    `values` (n,) are in the metric's unit; a value that is not finite is a missing one and is left out, indices still
    refer to the given values. `revisions` (n,) are strictly increasing positions in first-parent history, gaps
    allowed. The names of machine and benchmark, and the direction, are empty when unknown. Raises ValueError naming the
    timeline.
    """

    name: str
    values: Floats
    revisions: Ints
    machine: str = ""
    benchmark: str = ""
    better: Literal["lower", "higher", ""] = ""

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "values", np.asarray(self.values, dtype=np.float64))
            object.__setattr__(self, "revisions", _whole(self.revisions))
        except (ValueError, TypeError, OverflowError) as error:
            raise ValueError(f"timeline {self.name}: {error}") from error
        if self.values.ndim != 1 or self.revisions.ndim != 1:
            raise ValueError(f"timeline {self.name}: values and revisions must be flat lists")
        if len(self.values) != len(self.revisions):
            raise ValueError(f"timeline {self.name}: {len(self.values)} values for {len(self.revisions)} revisions")
        if len(self.revisions) > 1 and bool(np.any(self.revisions[1:] <= self.revisions[:-1])):
            raise ValueError(f"timeline {self.name}: revisions are not strictly increasing")
        if self.better not in ("lower", "higher", ""):
            raise ValueError(f"timeline {self.name}: better is {self.better!r}, neither lower nor higher")

    def until(self, count: int) -> "Timeline":
        """The first `count` points, as they stood then."""
        return replace(self, values=self.values[:count], revisions=self.revisions[:count])


def _whole(revisions: npt.ArrayLike) -> Ints:
    given = np.asarray(revisions)
    if given.size and given.dtype.kind not in "iu":
        raise ValueError(f"revisions must be whole numbers, not {given.dtype}")
    whole = given.astype(np.int64)
    if bool(np.any(whole != given)):
        raise ValueError("revisions must be whole numbers of 64 bits")
    return whole

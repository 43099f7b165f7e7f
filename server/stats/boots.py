"""From the values of a boot to its one datum: the boot is the unit of statistics."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from server.stats.cells import Arm, Flag, Values
from server.stats.shapes import FEWEST_BOOTS, Floats


@dataclass(frozen=True)
class Side:
    """One arm made ready: the values of its boots, or the problem that forbids it."""

    arm: Arm
    values: Floats
    problem: str = ""
    flag: Flag | None = None


def boot_value(values: Values) -> float:
    """Median on the log scale: the middle value, or the geometric mean of the middle two. Values are positive."""
    ordered = sorted(float(value) for value in values)
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    if low == high:
        return low
    # The product of the values themselves could overflow.
    return math.sqrt(low) * math.sqrt(high)


def read_side(name: str, boots: Sequence[Values]) -> Side:
    """`name` says in reasons whose boots these are. A boot without values gives no datum and does not count."""
    arrays = [array for array in (np.asarray(values, dtype=np.float64) for values in boots) if array.size]
    if not arrays:
        return _unusable(name, 0, "no values", Flag.TOO_FEW_BOOTS)
    values = np.concatenate(arrays)
    bad = int(np.count_nonzero(~np.isfinite(values)))
    if bad:
        return _unusable(name, len(arrays), f"{bad} of {values.size} values are no finite numbers", Flag.NOT_FINITE)
    bad = int(np.count_nonzero(values <= 0))
    if bad:
        return _unusable(name, len(arrays), f"{bad} of {values.size} values are zero or negative", Flag.NON_POSITIVE)
    data = np.array([boot_value(array) for array in arrays])
    arm = Arm(boots=len(data), mean=_mean(data), sd=_deviation(data))
    if len(data) < FEWEST_BOOTS:
        return Side(arm, data, f"{name} kernel: only 1 boot, {FEWEST_BOOTS} are needed", Flag.TOO_FEW_BOOTS)
    return Side(arm, data)


def _unusable(name: str, boots: int, problem: str, flag: Flag) -> Side:
    return Side(Arm(boots=boots), np.empty(0), f"{name} kernel: {problem}", flag)


def _scale(data: Floats) -> float:
    """A power of two near the largest value: dividing by it is exact and keeps sums and squares from overflowing."""
    return math.ldexp(0.5, int(np.frexp(data.max())[1]))


def _mean(data: Floats) -> float:
    scale = _scale(data)
    return float(np.mean(data / scale)) * scale


def _deviation(data: Floats) -> float | None:
    if len(data) < FEWEST_BOOTS:
        return None
    scale = _scale(data)
    # Measured from the first value, equal values have a deviation of exactly zero.
    return float(np.std((data - data[0]) / scale, ddof=1)) * scale

"""How many runs a boot should have: enough that booting pays, not so many that they repeat each other."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from server.stats.cells import Cell, Values

# Thirty years in seconds: more is a mistake, and products of such numbers would overflow.
_LONGEST = 1e9
Floats = npt.NDArray[np.float64]


class Basis(StrEnum):
    """What the number of runs rests on."""

    VARIANCES = "variances"  # the cells' own
    NO_SPREAD = "no-spread"  # nothing varies: one run tells all
    UNKNOWN = "unknown"  # too few boots or runs to tell the two variances apart


@dataclass(frozen=True)
class Costs:
    """Seconds that a boot takes without its kept runs (boot, warm-up, shutdown), and that each kept run takes."""

    boot: float
    run: float

    def __post_init__(self) -> None:
        for name, value in (("boot", self.boot), ("run", self.run)):
            if not 0 < value <= _LONGEST:
                raise ValueError(f"costs: {name} {value!r} is no positive number of seconds up to {_LONGEST:g}")


@dataclass(frozen=True)
class Limits:
    """The fewest and most runs of a boot, and the usual number where nothing is known."""

    fewest: int = 1
    most: int = 20
    # Published practice: 7 boots of 3 kept runs.
    usual: int = 3

    def __post_init__(self) -> None:
        if not 1 <= self.fewest <= self.usual <= self.most:
            raise ValueError(f"limits: {self.fewest}, {self.usual}, {self.most} are no increasing numbers from 1")


# With fewer boots of an arm the variance between boots is often estimated as zero, which would ask for the most runs.
_SETTLED_BOOTS = 8


def cautious(cells: Sequence[Cell], limits: Limits | None = None) -> Limits:
    """The limits while boots are few: at most twice the usual runs, until a cell has 8 boots of an arm."""
    limits = limits or Limits()
    boots = max((max(_with_values(cell.base), _with_values(cell.patched)) for cell in cells), default=0)
    return limits if boots >= _SETTLED_BOOTS else replace(limits, most=min(limits.most, 2 * limits.usual))


@dataclass(frozen=True)
class Variances:
    """Of one cell, on the log scale: between boots beyond what runs explain, and between the runs of a boot."""

    boot: float
    run: float


@dataclass(frozen=True)
class Repetitions:
    """The runs of a boot, and how many cells that rests on."""

    runs: int
    basis: Basis
    cells: int


def split_variance(cell: Cell) -> Variances | None:
    """Method of moments over both arms, each around its own mean; None when boots or runs are too few or unusable.

    The sum of squares within boots estimates the variance of a run; that between boots exceeds what runs explain by
    the variance of a boot (Kalibera and Jones, "Rigorous benchmarking in reasonable time", ISMM 2013; for boots of
    different size Searle, Casella and McCulloch, Variance Components, 1992). A negative estimate counts as 0.
    """
    arms = [_logs(cell.base), _logs(cell.patched)]
    splits = [_squares(arm) for arm in arms if arm]
    if None in arms or not splits:
        return None
    within, within_freedom, between, between_freedom, effective = (sum(parts) for parts in zip(*splits, strict=True))
    if not within_freedom or not between_freedom:
        return None
    run = within / within_freedom
    return Variances(boot=max(0.0, (between - between_freedom * run) / effective), run=run)


def runs_per_boot(variances: Sequence[Variances | None], costs: Costs, limits: Limits | None = None) -> Repetitions:
    """The runs that give the session's cells the most precision for its time.

    For one cell, precision for time is best at sqrt(costs.boot / costs.run * run variance / boot variance) runs
    (Kalibera and Jones, ISMM 2013). The cells of a session share its boots: the number is the one with the
    smallest geometric mean over cells of time times variance, so that no cell counts more because it is noisier.
    """
    limits = limits or Limits()
    known = [split for split in variances if split is not None]
    if not known:
        return Repetitions(limits.usual, Basis.UNKNOWN, 0)
    varying = [split for split in known if split.boot + split.run > 0]
    if not varying:
        return Repetitions(limits.fewest, Basis.NO_SPREAD, len(known))
    runs = np.arange(limits.fewest, limits.most + 1)
    # As shares, because of the logarithm only the ratio of a cell's two variances matters, not their size.
    share = np.array([split.run / (split.boot + split.run) for split in varying])
    variance = (1 - share)[:, None] + share[:, None] / runs
    burden = np.log(costs.boot + runs * costs.run) + np.mean(np.log(variance), axis=0)
    return Repetitions(int(runs[np.argmin(burden)]), Basis.VARIANCES, len(varying))


def _with_values(boots: Sequence[Values]) -> int:
    return sum(1 for values in boots if len(values))


def _logs(boots: Sequence[Values]) -> list[Floats] | None:
    """The logarithms of each boot that has values; None when a value has none."""
    arrays = [np.asarray(values, dtype=np.float64) for values in boots]
    if not all(bool(np.all(np.isfinite(values) & (values > 0))) for values in arrays):
        return None
    return [np.log(values) for values in arrays if values.size]


def _squares(arm: Sequence[Floats]) -> tuple[float, int, float, int, float]:
    """Of one arm: the sum of squares and the degrees of freedom within boots, the same between boots, and by how much
    the latter sum grows with the variance of a boot.
    """
    sizes = np.array([len(boot) for boot in arm], dtype=np.float64)
    # Measured from one common value, equal values have a variance of exactly zero.
    origin = arm[0][0]
    means = np.array([np.mean(boot - origin) for boot in arm])
    within = sum(float(np.sum((boot - origin - mean) ** 2)) for boot, mean in zip(arm, means, strict=True))
    centre = np.sum(sizes * means) / np.sum(sizes)
    between = float(np.sum(sizes * (means - centre) ** 2))
    total = float(np.sum(sizes))
    return within, int(total) - len(arm), between, len(arm) - 1, total - float(np.sum(sizes**2)) / total

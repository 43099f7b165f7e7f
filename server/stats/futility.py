"""The predicted chance that a cell's remaining boots will decide it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from server.stats.cells import Cell
from server.stats.comparison import compare
from server.stats.evidence import Design, Look
from server.stats.looks import levels

Floats = npt.NDArray[np.float64]
# The level of the interval from which a standard error is read back: at about one standard error the t quantile
# hardly depends on the degrees of freedom, which a comparison does not tell.
_ONE_ERROR = 1 / 3


@dataclass(frozen=True)
class Prospect:
    """The predicted chance of a verdict within the budget, and the least that is worth the boots left."""

    chance: float
    least: float

    @property
    def pays(self) -> bool:
        return self.chance >= self.least


def prospects(cells: Sequence[Cell], looks: Sequence[Look], design: Design) -> list[Prospect]:
    """What further boots may bring to cells that are seen now at `looks`; see `chances`."""
    least = [design.least_chance(cell, look.level.fraction) for cell, look in zip(cells, looks, strict=True)]
    return [Prospect(*pair) for pair in zip(chances(cells, looks, design), least, strict=True)]


def chances(cells: Sequence[Cell], looks: Sequence[Look], design: Design) -> list[float]:
    """For each cell, seen now at `looks`, the chance that the design's last look gives a verdict.

    The estimate at the last look is predicted from the one at this look, which carries the share t of the information
    and has the standard error s: around it, with variance s^2 (1 - t) (predictive power under a flat prior:
    Spiegelhalter, Freedman and Blackburn, Controlled Clinical Trials 7, 1986), in t's distribution because s is
    estimated. There the half width will be about s sqrt(t) times the t quantile of the last look's level. Cells must
    have a comparison with an interval, at less than the whole information.
    """
    if not looks:
        return []
    freedom = np.array([look.base + look.patched - 2 for look in looks], dtype=np.float64)
    share = np.array([look.level.fraction for look in looks])
    centre, error = _estimates(cells, freedom)
    last = levels(tuple(look / design.budget for look in design.looks), design.alpha, design.gamma)[-1]
    reach = error * np.sqrt(share) * special.stdtrit(2 * design.budget - 2, 1 - last.nominal / 2)
    limit = np.log1p([cell.min_effect for cell in cells])
    spread = error * np.sqrt(1 - share)

    def below(edge: Floats) -> Floats:
        return np.asarray(special.stdtr(freedom, (edge - centre) / spread))

    change = below(-limit - reach) + 1 - below(limit + reach)
    inside = np.maximum(limit - reach, 0.0)
    return list(np.minimum(change + below(inside) - below(-inside), 1.0).tolist())


def _estimates(cells: Sequence[Cell], freedom: Floats) -> tuple[Floats, Floats]:
    """The logarithms of the ratios, and their standard errors."""
    found = compare(cells, alpha=_ONE_ERROR)
    low = np.log([result.ratio_low or 1.0 for result in found])
    high = np.log([result.ratio_high or 1.0 for result in found])
    # An interval of no width would divide by zero; so narrow a one decides anyway.
    half = np.maximum((high - low) / 2, np.finfo(np.float64).eps)
    return (low + high) / 2, half / special.stdtrit(freedom, 1 - _ONE_ERROR / 2)

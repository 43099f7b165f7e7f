"""How the spread of a cell divides into boots and runs: what the planner of repetitions needs."""

import numpy as np

from server.stats.shapes import Floats
from server.stats.summaries import Summaries

# Means of boots agree better than this part of what their runs imply only by chance: with 3 boots once in 20 times.
_AGREEMENT = 0.1


def agreement(summaries: Summaries) -> Floats:
    """The least variance of a boot's mean of each arm, (M, 2), on logs: runs that vary leave no boot's mean certain.

    A part of the variance of runs over the harmonic mean of their numbers; zero where each boot has one run.
    """
    least = np.zeros_like(summaries.loose)
    for place, arm in enumerate(summaries.shape.arms):
        runs = summaries.shape.runs[arm]
        spare = int(runs.sum()) - len(runs)
        if spare:
            least[:, place] = _AGREEMENT * summaries.loose[:, place] / spare * np.mean(1 / runs)
    return least


def split(summaries: Summaries) -> tuple[Floats, Floats] | None:
    """Variance between boots and variance of runs inside a boot, each (M,), on logs; None where each boot has one run.

    Method of moments for unequal numbers (Henderson's first method, Biometrics 9, 1953), arms as fixed effects. A
    variance between boots that comes out negative is zero.
    """
    shape = summaries.shape
    runs = shape.runs.astype(np.float64)
    spare = float(runs.sum()) - len(runs)
    if spare == 0:
        return None
    run_variance = summaries.within.sum(axis=1) / spare
    squares, coefficient = np.zeros(len(summaries.means)), 0.0
    for arm in shape.arms:
        weight = runs[arm]
        centre = np.sum(summaries.means[:, arm] * weight, axis=1) / weight.sum()
        squares += np.sum((summaries.means[:, arm] - centre[:, None]) ** 2 * weight, axis=1)
        coefficient += float(weight.sum() - (weight**2).sum() / weight.sum())
    boot_variance = np.maximum(0.0, squares - (len(runs) - 2) * run_variance) / coefficient
    return boot_variance, run_variance

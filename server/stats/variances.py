"""How certain the mean of a boot is, seen from its runs."""

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

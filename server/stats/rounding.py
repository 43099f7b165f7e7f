"""What rounding alone does to values: the floor of every variance."""

import numpy as np

from server.stats.shapes import Floats

# On logs, a larger step says no more than that the value is unknown.
_LARGEST_STEP = 700.0
# Where the step is only guessed it is at most this part of the smaller mean. Two constants tell nothing of the step but
# their own distance, which alone would make no distance significant; so twice the value is a change, 1.2 and 1.3 are
# not.
_LARGEST_GUESS = 0.2


def rounding_variance(mean: Floats, resolution: Floats) -> Floats:
    """The least variance of an arm's mean, on logs: that of its rounding, which does not shrink with more boots.

    A value is the difference of two readings, each rounded to the resolution: step^2 / 12 for each (GUM, JCGM
    100:2008, F.2.2.1), step^2 / 6 together. When nothing else varies every boot is rounded alike, so the boots' mean
    has this error too. It makes one step of difference never significant, whatever the number of boots. Without a
    known resolution the step is the grid of floating-point numbers.
    """
    with np.errstate(over="ignore"):
        step = np.maximum(resolution, np.spacing(mean)) / mean
    step = np.maximum(step, np.spacing(np.abs(np.log(mean))))
    return np.asarray(np.minimum(step, _LARGEST_STEP) ** 2 / 6)


def step_of(resolution: Floats, smallest: Floats, mean: Floats) -> Floats:
    """The step of the values, (M,): the declared resolution, or else the `smallest` distance between values, if known.

    `mean` is that of the smaller arm, in the same unit.
    """
    return np.where(resolution > 0, resolution, np.minimum(smallest, _LARGEST_GUESS * mean))

"""How well a shift of level fits "did not move" and "moved by so much", for all timelines at one place."""

import math
from dataclasses import dataclass

import numpy as np

from server.stats.timelines import Floats

# Sizes of a change that are tried, as log ratios, equally likely on the logarithmic scale.
SIZES = np.geomspace(0.003, 0.6, 16)
# Events of machines are mostly small: at this size half as likely as at none.
LARGE_EVENT = 0.1
# A change moves different timelines differently: standard deviation of their effects as a share of its size.
VARIETY = 0.4
# Degrees of freedom of Student's t for shifts: drift and modes pass for noise now and then, the tails are heavy.
DEGREES = 6.0
# An error is never taken as smaller than this log ratio: code layout alone moves levels so far.
LEAST_ERROR = 0.0015


@dataclass(frozen=True, eq=False)
class Likelihoods:
    """Log likelihoods: `still` and `moved` (timelines,), the latter for any size and direction; `ways` (ways, sizes,
    timelines) for each size when all go up, all down, all get better, all get worse, or each goes its own way.
    `small` (sizes,) is the prior of the sizes of a machine's event.
    """

    still: Floats
    moved: Floats
    ways: Floats
    small: Floats


def likelihoods(effects: Floats, errors: Floats, direction: Floats) -> Likelihoods:
    """Of each timeline (timelines,): log ratio, its standard error, and +1 where more is better, else -1."""
    errors = np.maximum(errors, LEAST_ERROR)
    spread = np.hypot(errors, VARIETY * SIZES[:, None])
    up, down = (log_density(sign * effects - SIZES[:, None], spread) for sign in (1, -1))
    good = np.where(direction > 0, up, down)
    bad = np.where(direction > 0, down, up)
    own_way = np.logaddexp(up, down) - math.log(2)
    weight = 1 / (1 + (SIZES / LARGE_EVENT) ** 2)
    return Likelihoods(
        still=log_density(effects, errors),
        moved=np.logaddexp.reduce(own_way, axis=0) - math.log(len(SIZES)),
        # The last stands twice: nothing is known of the direction in half of all cases, as a rough guess.
        ways=np.stack([up, down, good, bad, own_way, own_way]),
        small=np.log(weight / weight.sum()),
    )


def either(share: Floats | float, moved: Floats, still: Floats) -> Floats:
    """Log likelihood when the given share moves and the others do not."""
    result: Floats = np.logaddexp(np.log(share) + moved, np.log1p(-np.asarray(share)) + still)
    return result


def log_sum(logs: Floats) -> float:
    """Log of the sum of exponentials; -inf for none. (scipy's costs more than all else here.)"""
    highest = float(np.max(logs, initial=-math.inf))
    return highest + math.log(float(np.exp(logs - highest).sum())) if math.isfinite(highest) else highest


def log_density(x: Floats, scale: Floats) -> Floats:
    """Student's t density without its constant, which cancels."""
    result: Floats = -(DEGREES + 1) / 2 * np.log1p((x / scale) ** 2 / DEGREES) - np.log(scale)
    return result

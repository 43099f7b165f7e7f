"""When a change is known at a place, how little another timeline needs to show to belong to it."""

import math

import numpy as np

from server.stats.likelihoods import VARIETY, likelihoods, log_density
from server.stats.shifts import Shift
from server.stats.steps import LEAST_EFFECT

# How likely a benchmark moves on a machine where it moved at the same revision on another one; and a timeline with a
# weak nomination of its own where only other benchmarks moved at that revision.
SAME_BENCHMARK, SAME_REVISION = 0.6, 0.05
# A benchmark moves on other machines by about the same ratio, rather than by any other, in this share of cases.
ALIKE = 0.75
# Fewer points than this after the place, or before it, show no level.
FEWEST_POINTS = 3


def belongs(shift: Shift, prior: float, expected: float | None = None) -> bool:
    """Whether a timeline with this shift more likely moved than not, when the prior share of its like did.

    `expected` is the log ratio by which the same benchmark moved elsewhere.
    """
    if shift.points < FEWEST_POINTS or abs(shift.effect) < LEAST_EFFECT:
        return False
    effect, error = np.array([shift.effect]), np.array([shift.error])
    found = likelihoods(effect, error, np.ones(1))
    moved = float(found.moved[0])
    if expected is not None:
        spread = np.hypot(error, VARIETY * abs(expected))
        alike = float(log_density(effect - expected, spread)[0])
        moved = float(np.logaddexp(math.log(ALIKE) + alike, math.log1p(-ALIKE) + moved))
    return moved - float(found.still[0]) + math.log(prior / (1 - prior)) > 0

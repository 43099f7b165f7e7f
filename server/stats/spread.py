"""Level and spread of the points beside a cut, and how sure the difference between its two sides is."""

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from server.stats.membership import crossing_evidence
from server.stats.noise import MAD_TO_DEVIATION, median
from server.stats.timelines import Floats

# Points on either side of a cut that are looked at: beyond, drift speaks rather than the step.
REACH = 50
# The timeline's own noise counts like so many points when the spread beside a cut is judged.
PRIOR_POINTS = 12
# Huber's bound (Ann. Math. Stat. 35, 1964) in deviations: the mean of values drawn in to it is 95 % efficient under
# normal noise, and its variance 8 % larger than that of the mean.
HUBER_BOUND = 1.5
HUBER_VARIANCE = 1.08
# Levels of long stretches wander by about this share of one point's deviation, however many points are averaged.
WANDER = 0.15
# What lasts for fewer points than this is a hiccup.
FEWEST_POINTS = 4
# Points beyond so many deviations are hiccups; where more than this share of all points are, the benchmark alternates
# between modes, its spread says little, and the counts of points on either side must bear the evidence too.
# Fewer than three are a hiccup however short the sides are.
FAR, ALTERNATING_SHARE, FEWEST_FAR = 3.5, 0.12, 3
# Evidence ends here: below 1e-300 a p-value says no more.
MOST_EVIDENCE = 300.0


@dataclass(frozen=True)
class Scale:
    """What is known of a timeline as a whole: the deviation of one point, and the variance ratio of correlated runs."""

    noise: float
    inflation: float = 1.0


@dataclass(frozen=True)
class Contrast:
    """Two sides of a cut: difference of their levels (right - left), deviation of one point, t statistic, freedom.

    `ceiling` is the most evidence that the counts of points on either side of the middle allow.
    """

    difference: float
    noise: float
    t: float
    freedom: float
    ceiling: float

    def evidence(self, share: float = 1.0) -> float:
        """-log10 of the two-sided p-value of the given share of the t statistic, as far as the counts agree."""
        p = 2 * float(special.stdtr(self.freedom, -abs(self.t * share)))
        return min(max(-math.log10(p), 0.0), self.ceiling) if p > 0 else self.ceiling


def contrast(left: Floats, right: Floats, scale: Scale) -> Contrast:
    """Compare the points beside a cut in the manner of a t test, with levels and spread that hiccups cannot move.

    The spread is pooled from both sides and drawn towards the timeline's own noise; its variance is raised for
    correlated runs, and by that of a level that wanders.
    """
    a, b = left[-REACH:], right[:REACH]
    middle_a, middle_b = median(a), median(b)
    rest_a, rest_b = a - middle_a, b - middle_b
    rest = np.abs(np.concatenate([rest_a, rest_b]))
    own = MAD_TO_DEVIATION * median(rest) * len(rest) / max(len(rest) - 2, 1)
    pooled = math.sqrt((PRIOR_POINTS * scale.noise**2 + len(rest) * own**2) / (PRIOR_POINTS + len(rest)))
    bound = HUBER_BOUND * pooled
    left_level = middle_a + float(np.clip(rest_a, -bound, bound).mean())
    right_level = middle_b + float(np.clip(rest_b, -bound, bound).mean())
    difference = right_level - left_level
    error = pooled * math.sqrt(HUBER_VARIANCE * scale.inflation * (1 / len(a) + 1 / len(b)) + WANDER**2)
    middle = (left_level + right_level) / 2
    settled = all(
        np.count_nonzero((side > middle) == (level > middle)) >= FEWEST_POINTS
        for side, level in ((a, left_level), (b, right_level))
    )
    far = np.count_nonzero(rest > FAR * pooled)
    alternates = far >= FEWEST_FAR and far > ALTERNATING_SHARE * len(rest)
    ceiling = 0.0 if not settled else crossing_evidence(a, b, middle) if alternates else MOST_EVIDENCE
    return Contrast(difference, pooled, difference / error, PRIOR_POINTS + len(rest) - 2, ceiling)

"""Timelines that go somewhere: no level is kept, so what counts is where their course breaks.

A quantity that is measured with independent errors turns back two times in three; one that wanders or follows a trend
turns every second time or less. Such timelines (footprints that grow, yearly figures) are told by straight lines.
"""

import math

import numpy as np

from server.stats.noise import difference_noise, median
from server.stats.partitions import cheapest
from server.stats.timelines import Floats

# Chance that neighbouring differences have the same sign: 1/3 for independent errors (Bienayme 1874; Wallis and Moore,
# J. Am. Stat. Assoc. 36, 1941), 1/2 for a random walk. 10 to 1 is asked for before a timeline is taken for the latter.
_SAME, _TURN = math.log((1 / 2) / (1 / 3)), math.log((1 / 2) / (2 / 3))
ODDS = math.log(10)
# What the eye cannot tell on a plot is no break: deviations are never taken below this share of the range.
VISIBLE = 0.05
# Price of a segment in units of the squared deviation and the log of the length. Errors of a course are strongly
# correlated, which asks for a multiple of the 3 that the criterion of Schwarz would take for its three parameters.
LINE_PRICE, LEVEL_PRICE = 9.0, 6.0
FEWEST_POINTS = 5
# The range is that of all but the outermost points on either side, in percent; hiccups beyond it by a fifth are cut.
OUTER, MARGIN = 2.0, 0.2
# Longer timelines are read in so many blocks of equal size: courses are long.
MOST_BLOCKS = 360


def breaks(values: Floats) -> list[int] | None:
    """First points of the new stretches of a timeline that goes somewhere; None for one that keeps levels."""
    if len(values) < 2 * FEWEST_POINTS or not _wanders(values):
        return None
    size = -(-len(values) // MOST_BLOCKS)
    blocks = np.array([median(values[i : i + size]) for i in range(0, len(values), size)])
    low, high = np.percentile(blocks, [OUTER, 100 - OUTER])
    if low == high:
        return None
    reach = float(high - low)
    scaled = np.clip((blocks - low) / reach, -MARGIN, 1 + MARGIN)
    price = max(difference_noise(scaled), VISIBLE) ** 2 * math.log(len(blocks))
    about_line, about_level = _costs(scaled)
    cuts, cost = cheapest(about_line, LINE_PRICE * price)
    _, cost_of_levels = cheapest(about_level, LEVEL_PRICE * price)
    return [cut * size for cut in cuts] if cost < cost_of_levels else None


def _wanders(values: Floats) -> bool:
    signs = np.sign(np.diff(values))
    products = signs[1:] * signs[:-1]
    return float(np.sum(products > 0) * _SAME + np.sum(products < 0) * _TURN) >= ODDS


def _costs(values: Floats) -> tuple[Floats, Floats]:
    """Sums of squares about the best line and about the best level, [to, from], infinite for segments too short."""
    edges = np.arange(len(values) + 1)
    size = np.subtract.outer(edges, edges).astype(np.float64)
    short = size < FEWEST_POINTS
    size[short] = FEWEST_POINTS
    # Sums before each point: their differences are the sums over segments.
    sums = np.zeros((3, len(edges)))
    np.cumsum([values, values * values, edges[:-1] * values], axis=1, out=sums[:, 1:])
    total, squares, products = (np.subtract.outer(row, row) for row in sums)
    about_level = squares - total * total / size
    # The mean and the sum of squares of consecutive times are known.
    slope_part = products - total * np.add.outer(edges / 2, edges / 2 - 0.5)
    about_line = about_level - slope_part * slope_part * (12 / (size * (size * size - 1)))
    about_level[short] = about_line[short] = math.inf
    return np.maximum(about_line, 0.0), np.maximum(about_level, 0.0)

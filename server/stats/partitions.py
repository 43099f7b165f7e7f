"""The cheapest way to cut a line into segments, exact."""

import numpy as np

from server.stats.timelines import Floats


def cheapest(costs: Floats, price: float) -> tuple[list[int], float]:
    """Edges between segments, in order, and the whole cost, when each segment costs `price` besides its own cost.

    `costs[t, s]` (k, k) is the cost of the segment from edge s to edge t, for s < t, infinite where there must be none;
    the rest is not read. Optimal partitioning (Jackson et al., IEEE Signal Process. Lett. 12, 2005).
    """
    best = np.zeros(len(costs))
    back = [0] * len(costs)
    for t, row in enumerate(costs):
        if t:
            totals = best[:t] + row[:t]
            back[t] = start = int(totals.argmin())
            best[t] = totals[start] + price
    chosen = []
    t = back[-1]
    while t > 0:
        chosen.append(t)
        t = back[t]
    return chosen[::-1], float(best[-1])

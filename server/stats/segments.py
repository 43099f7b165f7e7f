"""Candidates for change points: the exact best segmentation under a cost that no single value can dominate.

The cost of a segment is its scatter in the feature space of a Gaussian kernel (Arlot, Celisse and Harchaoui, J. Mach.
Learn. Res. 20, 2019): values far apart are merely different, however far. Values are gathered in narrow bins, so that
the kernel is small; long timelines are cut only where a comparison of neighbours gives a reason.
"""

import math
from dataclasses import dataclass

import numpy as np

from server.stats.partitions import cheapest
from server.stats.timelines import Floats, Ints

# Kernel width in deviations of the noise, and bins to each width: the error of binning is below 1 %.
KERNEL_WIDTH = 2.0
BINS_PER_WIDTH = 4
# More distinct bins come from long courses only; neighbouring ones are then merged.
MOST_BINS = 400
# Up to this many points every position is tried, beyond it the local bests when so many points a side are compared.
ALL_POSITIONS = 200
SIDES = (3, 8, 24)
# Local bests below this many deviations are not worth a try; a cut needs several times as much.
LEAST_JUMP = 1.0
# Multiplications in one product of matrices up to which OpenBLAS keeps to one thread.
ONE_THREAD = 250_000


@dataclass(frozen=True, eq=False)
class Segmentation:
    """Where cuts may lie (`edges` (k,), from 0 to the number of points) and the cost of each segment between them.

    `costs[t, s]` (k, k) is that of the segment from edge s to edge t, for s < t, less its length: lengths add up to the
    same whatever the cuts.
    """

    edges: Ints
    costs: Floats

    def cuts(self, penalty: float) -> list[int]:
        """First points of the new segments, in order, when each segment costs `penalty` times the log of the length."""
        chosen, _ = cheapest(self.costs, penalty * math.log(float(self.edges[-1])))
        return [int(edge) for edge in self.edges[chosen]]


def segmentation(values: Floats, noise: float) -> Segmentation:
    """`noise` is the deviation of one point, in the unit of the values (n,), n at least 1."""
    scaled = (values - np.median(values)) / noise
    edges = _positions(scaled)
    gram = _gram(scaled, edges)
    norm = np.diagonal(gram)
    # The scatter of a segment is its length less the squared norm of its summed features over its length. Above the
    # diagonal nothing is meant, but no division by zero either.
    length = np.maximum(np.subtract.outer(edges, edges), 1)
    return Segmentation(edges, (2 * gram - norm - norm[:, None]) / length)


def _positions(scaled: Floats) -> Ints:
    n = len(scaled)
    allowed = np.full(n + 1, n <= ALL_POSITIONS)
    allowed[[0, n]] = True
    if n > ALL_POSITIONS:
        total = np.concatenate([[0.0], np.cumsum(_without_spikes(scaled))])
        for side in SIDES:
            jump = np.abs(total[2 * side :] - 2 * total[side:-side] + total[: -2 * side]) / math.sqrt(2 * side)
            padded = np.pad(jump, 2, constant_values=-1.0)
            around = np.stack([padded[shift : shift + len(jump)] for shift in (0, 1, 3, 4)])
            allowed[np.flatnonzero((jump >= around.max(axis=0)) & (jump > LEAST_JUMP)) + side] = True
    return np.flatnonzero(allowed)


def _without_spikes(scaled: Floats) -> Floats:
    """Values drawn in to within one kernel width of the median of three neighbours: a hiccup must not hide a step."""
    middle = scaled.copy()
    middle[1:-1] = np.median(np.stack([scaled[:-2], scaled[1:-1], scaled[2:]]), axis=0)
    return np.clip(scaled, middle - KERNEL_WIDTH, middle + KERNEL_WIDTH)


def _gram(scaled: Floats, edges: Ints) -> Floats:
    levels, member = np.unique(np.rint(scaled * (BINS_PER_WIDTH / KERNEL_WIDTH)), return_inverse=True)
    if len(levels) > MOST_BINS:
        member = member * MOST_BINS // len(levels)
        levels = np.array([group[len(group) // 2] for group in np.array_split(levels, MOST_BINS)])
    distance = np.clip(np.subtract.outer(levels, levels) / BINS_PER_WIDTH, -30.0, 30.0)
    kernel = np.exp(-0.5 * distance * distance)
    block = np.searchsorted(edges, np.arange(len(scaled)), side="right") - 1
    counts = np.bincount(block * len(levels) + member, minlength=(len(edges) - 1) * len(levels))
    before = np.zeros((len(edges), len(levels)))
    np.cumsum(counts.reshape(len(edges) - 1, len(levels)), axis=0, out=before[1:])
    return _product(_product(before, kernel), before.T)


def _product(left: Floats, right: Floats) -> Floats:
    """In slices so small that a BLAS starts no threads for them: those would wait for each other on a busy machine."""
    rows = max(1, ONE_THREAD // right.size)
    return np.concatenate([left[start : start + rows] @ right for start in range(0, len(left), rows)])

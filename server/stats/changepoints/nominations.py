"""Change points of one timeline, each judged on its own; what other machines say is for the fleet."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from server.stats.changepoints.steps import (
    FEWEST_POINTS,
    STRICT,
    Cut,
    Cuts,
    Scale,
    Step,
    bends_at,
    steps_from,
    with_weak,
)
from server.stats.changepoints.timeline import (
    Floats,
    Ints,
    TimelineValues,
    difference_noise,
    local_trend,
    median,
    run_correlation,
)


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


# Candidates for change points: the exact best segmentation under a cost that no single value can dominate.
#
# The cost of a segment is its scatter in the feature space of a Gaussian kernel (Arlot, Celisse and Harchaoui, J.
# Mach. Learn. Res. 20, 2019): values far apart are merely different, however far. Values are gathered in narrow bins,
# so that the kernel is small; long timelines are cut only where a comparison of neighbours gives a reason.

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
    costs = _gram(scaled, edges)
    norm = np.diagonal(costs).copy()
    # The scatter of a segment is its length less the squared norm of its summed features over its length. Above the
    # diagonal nothing is meant, but no division by zero either.
    costs *= 2
    costs -= norm
    costs -= norm[:, None]
    costs /= np.maximum(np.subtract.outer(edges, edges), 1)
    return Segmentation(edges, costs)


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
    product = np.empty((len(left), right.shape[1]))
    for start in range(0, len(left), rows):
        np.matmul(left[start : start + rows], right, out=product[start : start + rows])
    return product


# Chance that neighbouring differences have the same sign: 1/3 for independent errors (Bienayme 1874; Wallis and Moore,
# J. Am. Stat. Assoc. 36, 1941), 1/2 for a random walk. 10 to 1 is asked for before a timeline is taken for the latter.
_SAME, _TURN = math.log((1 / 2) / (1 / 3)), math.log((1 / 2) / (2 / 3))
# Timelines that go somewhere: no level is kept, so what counts is where their course breaks.
#
# A quantity that is measured with independent errors turns back two times in three; one that wanders or follows a
# trend turns every second time or less. Such timelines (footprints that grow, yearly figures) are told by straight
# lines.

ODDS = math.log(10)
# What the eye cannot tell on a plot is no break: deviations are never taken below this share of the range.
VISIBLE = 0.05
# Price of a segment in units of the squared deviation and the log of the length. Errors of a course are strongly
# correlated, which asks for a multiple of the 3 that the criterion of Schwarz would take for its three parameters.
LINE_PRICE, LEVEL_PRICE = 9.0, 6.0
FEWEST_TREND_POINTS = 5
# The range is that of all but the outermost points on either side, in percent; hiccups beyond it by a fifth are cut.
OUTER, MARGIN = 2.0, 0.2
# Longer timelines are read in so many blocks of equal size: courses are long.
MOST_BLOCKS = 360


def breaks(values: Floats) -> list[int] | None:
    """First points of the new stretches of a timeline that goes somewhere; None for one that keeps levels."""
    if len(values) < 2 * FEWEST_TREND_POINTS or not _wanders(values):
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
    short = size < FEWEST_TREND_POINTS
    size[short] = FEWEST_TREND_POINTS
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


# What a segment costs in the search, times the log of the length.
PENALTY = 0.6
# Where weak steps are asked for too, more is tried.
WEAK_PENALTY = 0.45
# The correlation of runs is read off the levels that the first penalty leaves, their trend off those of the second: a
# step that no cut marks would pass for a trend.
FIRST_PENALTY, TREND_PENALTY = 0.8, 0.5
# Longer timelines are searched in windows of this many points, so that the time grows with the length only. Of what
# two windows share, each is believed for the half that is farther from its end. Cuts of both beside the seam, so many
# points apart, are one step.
WINDOW, SHARED, SEAM = 2000, 400, 8
# Without logarithms, values are in units of their usual size; beyond this they are hiccups in any case.
LARGEST = 1e6
# A usual size below the normal floats cannot be divided by.
SMALLEST = float(np.finfo(np.float64).tiny)

# From values and threshold to cuts.
Search = Callable[[Floats, float], list[Cut]]


def nominate(timelines: Sequence[TimelineValues], *, threshold: float | None = None) -> list[list[Step]]:
    """For each timeline its steps in order of index.

    `threshold` is the least score, -log10 of a p-value, usually STRICT; a higher one nominates less. One below STRICT
    adds weak steps, with scores below STRICT, to the sure ones and leaves those as they are. Values that are not finite
    are left out.
    Timelines of no machine that keep no level (see `trends`) get the places where their course breaks, whatever the
    threshold.
    """
    return [_nominate(timeline, STRICT if threshold is None else threshold) for timeline in timelines]


def _nominate(timeline: TimelineValues, threshold: float) -> list[Step]:
    kept = np.flatnonzero(np.isfinite(timeline.values))
    values = timeline.values[kept]
    search = _levels if timeline.machine else _levels_or_course
    found = _joined(_search(values, window, search, threshold) for window in _windows(len(values)))
    ends = [*(cut.place for cut in found), len(values)][1:]
    return [
        Step(
            index=int(kept[cut.place]),
            revision=int(timeline.revisions[kept[cut.place]]),
            effect=cut.difference,
            score=cut.evidence,
            points=end - cut.place,
        )
        for cut, end in zip(found, ends, strict=True)
    ]


def _joined(windows: Iterable[list[Cut]]) -> list[Cut]:
    """The cuts of all windows in order; of those of two windows for one step the surer."""
    found: list[Cut] = []
    for cuts in windows:
        before = list(found)
        for cut in cuts:
            twin = next((one for one in before if abs(one.place - cut.place) <= SEAM), None)
            if twin is None:
                found.append(cut)
            elif twin in found and cut.evidence > twin.evidence:
                found[found.index(twin)] = cut
    return sorted(found, key=lambda cut: cut.place)


def _windows(count: int) -> Iterator[slice]:
    start = 0
    while start == 0 or start + SHARED < count:
        yield slice(start, min(start + WINDOW, count))
        start += WINDOW - SHARED


def _search(values: Floats, window: slice, search: Search, threshold: float) -> list[Cut]:
    part = values[window]
    if len(part) < 2 * FEWEST_POINTS or float(part.min()) == float(part.max()):
        return []
    cuts = search(part, threshold)
    low = window.start + SHARED // 2 - SEAM // 2 if window.start else 0
    high = window.stop - SHARED // 2 + SEAM // 2 if window.stop < len(values) else len(values)
    return [replace(cut, place=place) for cut in cuts if low <= (place := window.start + cut.place) < high]


def _relative(values: Floats) -> Floats:
    return np.log(values) if float(values.min()) > 0 else _in_units(values)


def _in_units(values: Floats) -> Floats:
    """Values in units of their usual size, which is the median size of those that are not zero."""
    usual = max(median(np.abs(values[values != 0])), SMALLEST)
    with np.errstate(over="ignore"):
        return np.clip(values / usual, -LARGEST, LARGEST)


def _levels_or_course(values: Floats, threshold: float) -> list[Cut]:
    bends = breaks(_in_units(values))
    if bends is None:
        return _levels(values, threshold)
    relative = _relative(values)
    return bends_at(relative, bends, Scale(difference_noise(relative)))


def _levels(values: Floats, threshold: float) -> list[Cut]:
    relative = _relative(values)
    noise = difference_noise(relative)
    candidates = segmentation(relative, noise)
    correlation = run_correlation(_residuals(relative, candidates.cuts(FIRST_PENALTY)))
    inflation = (1 + correlation) / (1 - correlation)
    trend = local_trend(relative, candidates.cuts(TREND_PENALTY), inflation)
    scale = Scale(noise, inflation, trend)
    cuts = Cuts(relative, scale)
    found = steps_from(cuts, candidates.cuts(PENALTY), max(threshold, STRICT))
    if threshold >= STRICT:
        return found
    return with_weak(found, steps_from(cuts, candidates.cuts(WEAK_PENALTY), threshold))


def _residuals(values: Floats, cuts: Sequence[int]) -> Floats:
    return np.concatenate([part - median(part) for part in np.split(values, cuts)])

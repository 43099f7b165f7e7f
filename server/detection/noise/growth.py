"""Whether a machine differs more between equal kernels than it used to. Numbers only, no database."""

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy import special

from server.detection.noise.cell_key import CellKey

Changes = Mapping[CellKey, float]

# Fifteen nights: with fewer, the spread between trials is known too badly (docs/detection/noise.md has a simulation).
FEWEST_TRIALS = 15
# So many changes of a cell, the newest among them, make its usual size.
FEWEST_CHANGES = 5
# A machine is judged by many cells: a benchmark with trouble of its own is not the machine's.
FEWEST_CELLS = 5
# Two trials in a row must both be so unlikely: a machine that did not change is quarantined at about one trial in 500
# at worst, as simulated (bench/machine_noise.py). One trial at a level as strict as that does not hold it: the
# logarithm of a noise that moves all cells alike is not normal so far out.
LEVEL = 0.0075
# Less than this many times its usual noise is no reason to take a machine out of service.
LEAST_GROWTH = 1.5
# A trial of a machine that drifted is as before when it is at most so many times as noisy as usual, and what a machine
# that never drifted shows so often at least. Both are far from what makes a drift, so that no machine on the border
# goes out of service and comes back night after night.
CALM_GROWTH = 1.2
CALM_CHANCE = 0.1
# One cell that went wild counts for this many usual ones at most.
_CAP = 6.0
# Cells that hardly vary, as counted instructions, have no noise to grow.
_STILL = 1e-5
# Deviation of log(mean |z|) over independent normal cells, times the root of their number: sqrt(pi / 2 - 1).
_INDEPENDENT = 0.756


@dataclass(frozen=True)
class Growth:
    """How many times its usual noise a machine shows, and the chance of that; `sizes` are the cells' shares of it."""

    times: float
    chance: float
    sizes: Mapping[CellKey, float]

    @property
    def is_suspicious(self) -> bool:
        return self.chance <= LEVEL and self.times >= LEAST_GROWTH

    @property
    def is_calm(self) -> bool:
        """As usual: not merely short of suspicious."""
        return self.chance >= CALM_CHANCE and self.times <= CALM_GROWTH


def growth(history: Sequence[Changes], newest: Changes) -> Growth | None:
    """The newest A/A trial against those before; None when there is too little to say anything.

    Changes are logarithms of ratios by cell. Each is measured in the usual size of its cell (the median over all
    trials, the newest among them, so that every trial is treated alike); a trial's noise is the mean over its cells.
    Cells of one trial are not independent: one bad hour moves them all. So their number gives no certainty; the spread
    of that mean between trials does, with Student's distribution for a further observation.
    """
    scales = _scales([*history, newest])
    levels = [level for trial in history if (level := _level(trial, scales)) is not None]
    now = _level(newest, scales)
    if now is None or len(levels) < FEWEST_TRIALS:
        return None
    number = len(levels)
    cells = sum(cell in scales for cell in newest)
    spread = max(statistics.stdev(levels), _INDEPENDENT / math.sqrt(cells))
    usual = statistics.fmean(levels)
    t = (now - usual) / (spread * math.sqrt(1 + 1 / number))
    sizes = {cell: abs(log) / scales[cell] for cell, log in newest.items() if cell in scales}
    return Growth(math.exp(now - usual), float(special.stdtr(number - 1, -t)), sizes)


def _scales(trials: Sequence[Changes]) -> dict[CellKey, float]:
    seen: dict[CellKey, list[float]] = defaultdict(list)
    for trial in trials:
        for cell, log in trial.items():
            seen[cell].append(abs(log))
    usual = {cell: statistics.median(sizes) for cell, sizes in seen.items() if len(sizes) >= FEWEST_CHANGES}
    return {cell: size for cell, size in usual.items() if size > _STILL}


def _level(trial: Changes, scales: Mapping[CellKey, float]) -> float | None:
    """The logarithm of the trial's noise; None for one of too few cells."""
    sizes = [min(abs(log) / scales[cell], _CAP) for cell, log in trial.items() if cell in scales]
    return math.log(max(statistics.fmean(sizes), _STILL)) if len(sizes) >= FEWEST_CELLS else None

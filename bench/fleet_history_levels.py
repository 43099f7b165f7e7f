"""What a boot of the simulated fleet measures: levels, drift, and noise of machines, kernels, boots and runs.

Noise is log-normal and of the sizes that kernel benchmarks have: boots differ by a part of what runs differ by, some
cases have heavy tails, and some fall into one of two modes at each boot.
"""

import zlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bench.fleet_history_truth import CASES, CASES_EACH, UARCHS, Truth

Array = npt.NDArray[np.float64]
RUNS, WARMUP = 4, 1
_WITHIN = (0.002, 0.02)
_BOOT_RATIO = (0.3, 2.0)
_TAILS = (3, 5, 8, 50)
_BIMODAL, _MODE_GAP, _MODE_SHARE = 0.15, (0.02, 0.08), (0.15, 0.5)
# Where code lies differs a little with every kernel, in two of five cases.
_LAYOUT_SHARE, _LAYOUT = 0.4, (0.0005, 0.0025)
# A machine's own level: of all its cases together, and of each; half of it is kept from one revision to the next five.
_DRIFT, _CASE_DRIFT, _KEPT = 0.01, 0.004, 0.87
# What a session's machine gets faster or slower by from its first boot to its last.
_TREND = 0.003


@dataclass(frozen=True)
class Kernel:
    """The revision at a place, without what some places before it changed."""

    place: int
    without: frozenset[int] = frozenset()


class Levels:
    """Deterministic: what a boot measures follows from the seed, its trial, its machine and its position alone."""

    def __init__(self, truth: Truth, seed: int) -> None:
        self._truth, self._seed = truth, seed
        rng = np.random.default_rng([seed, 2])
        self.slower_is_more = np.array([n // CASES_EACH % 2 == 0 for n in range(CASES)])
        self._level = rng.uniform(3.0, 10.0, size=(truth.machines, CASES))
        self._within = np.exp(rng.uniform(np.log(_WITHIN[0]), np.log(_WITHIN[1]), size=CASES))
        self._boot = self._within * rng.uniform(*_BOOT_RATIO, size=CASES)
        self._tail = rng.choice(_TAILS, size=CASES)
        self._gap = np.where(rng.random(CASES) < _BIMODAL, rng.uniform(*_MODE_GAP, size=CASES), 0.0)
        self._mode = rng.uniform(*_MODE_SHARE, size=CASES)
        self._code = self._code_levels(rng)
        self._drift = self._machine_levels(rng)

    def _code_levels(self, rng: np.random.Generator) -> Array:
        """By microarchitecture, place and case."""
        truth = self._truth
        sizes = rng.uniform(*_LAYOUT, size=CASES) * (rng.random(CASES) < _LAYOUT_SHARE)
        layout = rng.standard_normal((len(UARCHS), truth.revisions, CASES)) * sizes
        for place in sorted(truth.idle):
            layout[:, place] = layout[:, place - 1]
        levels = layout
        for change in truth.changes:
            for (uarch, case), effect in change.effects.items():
                levels[UARCHS.index(uarch), change.place :, case] += effect
        return np.asarray(levels, dtype=np.float64)

    def _machine_levels(self, rng: np.random.Generator) -> Array:
        """By machine, revision at which it measures, and case; what one measured just before is much alike."""
        truth = self._truth
        shape = (truth.machines, truth.revisions, CASES)
        steps = _CASE_DRIFT * rng.standard_normal(shape) + _DRIFT * rng.standard_normal((*shape[:2], 1))
        steps *= np.sqrt(1 - _KEPT**2)
        for place in range(1, truth.revisions):
            steps[:, place] += _KEPT * steps[:, place - 1]
        return np.asarray(steps, dtype=np.float64)

    def uarch(self, machine: int) -> str:
        return UARCHS[machine * len(UARCHS) // self._truth.machines]

    def text(self, kernel: Kernel) -> str:
        """What names the code of a kernel: revisions that change none have that of the one before."""
        idle = self._truth.idle
        place = next(place for place in range(kernel.place, -1, -1) if place not in idle)
        return f"{place} without {sorted(kernel.without - idle)}"

    def _code_of(self, uarch: int, kernel: Kernel) -> Array:
        level: Array = self._code[uarch, kernel.place].copy()
        for change in self._truth.changes:
            if change.place in kernel.without:
                for (name, case), effect in change.effects.items():
                    level[case] -= effect * (name == UARCHS[uarch])
        return level

    def values(self, *, machine: int, kernel: "Kernel", now: int, session: str, position: int) -> Array:
        """Values of every case, (case, run), in its metric's unit; `now` is the place of the branch's head."""
        rng = np.random.default_rng([self._seed, zlib.crc32(session.encode()), machine, position])
        uarch = machine * len(UARCHS) // self._truth.machines
        slow = self._code_of(uarch, kernel) + self._drift[machine, now] + _TREND * (position / 8.0)
        for step in self._truth.maintenance:
            if step.machine == machine and now >= step.place and kernel.place > 0:
                slow = slow + step.effects
        slow = slow + self._boot * _student(rng, self._tail, (1, CASES))[0]
        slow = slow + self._gap * (rng.random(CASES) < self._mode)
        runs = slow[:, None] + self._within[:, None] * _student(rng, self._tail, (RUNS, CASES)).T
        signed = np.where(self.slower_is_more[:, None], runs, -runs)
        return np.asarray(np.exp(self._level[machine][:, None] + signed).round(4), dtype=np.float64)


def _student(rng: np.random.Generator, tails: npt.NDArray[np.int64], shape: tuple[int, int]) -> Array:
    """Heavy-tailed noise of unit standard deviation."""
    return np.asarray(rng.standard_t(tails, size=shape) / np.sqrt(tails / (tails - 2.0)), dtype=np.float64)

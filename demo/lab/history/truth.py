"""What really happens in the simulated fleet, and what its boots measure."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

# What really happens in the simulated fleet: which revisions change what, and what becomes of machines.
#
# A place is the number of a revision on the branch, from 0, the reference; effects are logarithms, above 0 is slower.

# None of them is in the replay of published cases: one site may hold both fleets.
UARCHS = ("zen2", "sapphirerapids", "neoverse-v2")
# Of those that are not x86_64.
ARCHS = {"neoverse-v2": "arm64"}
BENCHMARKS, CASES_EACH = 8, 5
CASES = BENCHMARKS * CASES_EACH
# Fractions. The smallest are near what can be told at all with the noise of the cases.
SIZES = (0.20, 0.15, 0.12, 0.10, 0.08, 0.07, 0.06, 0.05, 0.04, 0.035, 0.03, 0.02)
MAINTENANCE_SIZES = (0.02, 0.03, 0.04, 0.06)
# Until a level is known nothing can be told of it, and the last revisions show what came before them: at both ends
# nothing happens for so many revisions, of a short history a third.
_QUIET, _MOST_QUIET = 24, 3
# Shares: of revisions that are no head, of revisions that change no code, of a benchmark's cases that a change of it
# hits, of changes for the worse.
_NO_HEAD, _IDLE, _HIT, _WORSE = 0.2, 0.1, 0.7, 0.7


@dataclass(frozen=True)
class Change:
    """A revision that changes the speed of some cases: `effects` by microarchitecture and case."""

    place: int
    size: float
    kind: str
    effects: Mapping[tuple[str, int], float]


@dataclass(frozen=True)
class Maintenance:
    """From this place on every kernel but the reference runs otherwise on one machine: `effects` by case."""

    place: int
    machine: int
    effects: tuple[float, ...]


@dataclass(frozen=True)
class Truth:
    """`unwanted` revisions are never heads, `unbuildable` ones give no kernel, `idle` ones change no code at all.

    `away` are the places at which a machine is not there: (machine, first, last).
    """

    revisions: int
    machines: int
    benchmarks: int
    changes: tuple[Change, ...]
    maintenance: tuple[Maintenance, ...]
    unwanted: frozenset[int]
    unbuildable: frozenset[int]
    idle: frozenset[int]
    away: tuple[tuple[int, int, int], ...]


def make_truth(
    seed: int, *, revisions: int, machines: int, changes: int, maintenance: int, benchmarks: int = BENCHMARKS
) -> Truth:
    rng = np.random.default_rng([seed, 1])
    places = _spread(rng, revisions, changes + maintenance)
    at_changes, at_maintenance = places[:changes], places[changes:]
    sizes = rng.permutation(SIZES[:: max(1, len(SIZES) // changes)][:changes])
    unbuildable = _runs(rng, revisions, count=revisions // 40, longest=4)
    # Of these changes no revision can be named: what is right is the gap.
    unbuildable |= {place + n for place in at_changes[1 :: len(at_changes) // 2 or 1] for n in (-1, 0, 1)}
    gaps = _runs(rng, revisions, count=revisions // 75, longest=9)
    skipped = {place for place in range(1, revisions) if rng.random() < _NO_HEAD}
    quiet = {place for place in range(1, revisions) if rng.random() < _IDLE}
    return Truth(
        revisions,
        machines,
        benchmarks,
        tuple(
            _change(rng, place, float(size), i, benchmarks)
            for i, (place, size) in enumerate(zip(at_changes, sizes, strict=True))
        ),
        tuple(_maintenance(rng, place, machines, i) for i, place in enumerate(at_maintenance)),
        frozenset((gaps | skipped) - {0, revisions - 1}),
        frozenset(unbuildable - {0}),
        frozenset(quiet - {*at_changes, *unbuildable}),
        _absences(rng, revisions, machines),
    )


def _spread(rng: np.random.Generator, revisions: int, count: int) -> list[int]:
    """Places in random order, far enough from each other to be told apart."""
    quiet = min(_QUIET, revisions // _MOST_QUIET)
    room = (revisions - 2 * quiet) / count
    return [int(quiet + room * (n + rng.uniform(0.0, 0.4))) for n in rng.permutation(count)]


def _change(rng: np.random.Generator, place: int, size: float, number: int, known: int) -> Change:
    """In turn on every microarchitecture, on one alone, and for better on one and for worse on another."""
    kind = ("all", "one", "split")[number % 3]
    first, second, third = (UARCHS[n] for n in rng.permutation(len(UARCHS)))
    slower = 1.0 if rng.random() < _WORSE else -1.0
    signs = {
        "all": {first: slower, second: slower, third: slower},
        "one": {first: slower},
        "split": {first: 1.0, second: -1.0},
    }[kind]
    benchmarks = rng.permutation(known)[: rng.integers(1, 4)]
    cases = [int(b) * CASES_EACH + n for b in benchmarks for n in range(CASES_EACH) if rng.random() < _HIT]
    effects = {
        (uarch, case): sign * float(np.log1p(size * rng.uniform(0.8, 1.2)))
        for case in cases or [int(benchmarks[0]) * CASES_EACH]
        for uarch, sign in signs.items()
    }
    return Change(place, size, kind, effects)


def _maintenance(rng: np.random.Generator, place: int, machines: int, number: int) -> Maintenance:
    size = float(MAINTENANCE_SIZES[number % len(MAINTENANCE_SIZES)]) * float(rng.choice([-1.0, 1.0]))
    effects = tuple(float(np.log1p(size * rng.uniform(0.6, 1.4))) for _ in range(CASES))
    return Maintenance(place, int(rng.integers(machines)), effects)


def _runs(rng: np.random.Generator, revisions: int, *, count: int, longest: int) -> set[int]:
    starts = rng.integers(revisions // 8, revisions - revisions // 8, size=count)
    return {int(start) + n for start in starts for n in range(int(rng.integers(1, longest + 1)))}


def _absences(rng: np.random.Generator, revisions: int, machines: int) -> tuple[tuple[int, int, int], ...]:
    """Each of half of the machines is away once, for a while."""
    away = rng.permutation(machines)[: machines // 2]
    starts = rng.integers(revisions // 8, revisions - revisions // 8, size=len(away))
    return tuple(
        (int(machine), int(start), int(start) + int(rng.integers(4, 16)))
        for machine, start in zip(away, starts, strict=True)
    )


def wanted_places(truth: Truth) -> Sequence[int]:
    return [place for place in range(truth.revisions) if place not in truth.unwanted]


# What a boot of the simulated fleet measures: levels, drift, and noise of machines, kernels, boots and runs.
#
# Noise is log-normal and of the sizes that kernel benchmarks have: boots differ by a part of what runs differ by,
# some cases have heavy tails, and some fall into one of two modes at each boot.

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

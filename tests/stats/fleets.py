"""Small fleets with known changes, for the tests of the fleet step."""

from collections.abc import Mapping, Sequence

import numpy as np

from server.stats.changepoints.timeline import TimelineValues

MACHINES = ("zen3", "zen5", "icelake", "neoverse")
BENCHMARKS = ("pipe", "fork", "futex", "kbuild", "tcp", "mmap")

# (machine, benchmark) -> [(revision, log ratio)]
Changes = Mapping[tuple[str, str], Sequence[tuple[int, float]]]


def fleet(
    changes: Changes,
    *,
    seed: int = 1,
    points: int = 120,
    noise: float = 0.01,
    machines: Sequence[str] = MACHINES,
    benchmarks: Sequence[str] = BENCHMARKS,
) -> list[TimelineValues]:
    """Normal noise about a level of 100, of every machine and benchmark."""
    rng = np.random.default_rng(seed)
    made = []
    for machine in machines:
        for benchmark in benchmarks:
            level = np.full(points, np.log(100.0))
            for revision, size in changes.get((machine, benchmark), ()):
                level[revision:] += size
            values = np.exp(level + noise * rng.standard_normal(points))
            made.append(
                TimelineValues(
                    name=f"{machine}/{benchmark}",
                    values=values,
                    revisions=np.arange(points),
                    machine=machine,
                    benchmark=benchmark,
                    better="lower",
                )
            )
    return made


def everything_of(machine: str, revision: int, size: float) -> dict[tuple[str, str], list[tuple[int, float]]]:
    """An event of a machine: all its benchmarks move, not all by exactly the same ratio."""
    return {(machine, b): [(revision, size * (0.8 + 0.08 * i))] for i, b in enumerate(BENCHMARKS)}


def everywhere(benchmark: str, revision: int, size: float) -> dict[tuple[str, str], list[tuple[int, float]]]:
    """A change of the code that one benchmark shows on all machines."""
    return {(m, benchmark): [(revision, size * (0.8 + 0.1 * i))] for i, m in enumerate(MACHINES)}

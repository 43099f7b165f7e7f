"""A published series as what simulated machines would measure of it, and what simulated kernels hold."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

# Beginnings of the names of files that say what a commit holds.
STUDY, PATCH = "study-", "patch-"
# This share of a published variance lies between boots: nobody published it; bench.statistics.published tries more.
BETWEEN_BOOTS = 0.3
# Standard deviation between boots, and between the runs of one, where no spread was published. Three times as much, and
# no 16 boots would tell "unchanged" from 1 % in every such cell; those who published them told 4.6 % from nothing.
UNPUBLISHED = 0.005
# Means of rows that were published without.
ROUND_MEAN = 10.0
_LONGEST_NAME = 60


@dataclass(frozen=True)
class Kernel:
    """What a simulated image holds: which study it belongs to, and which of its patches are in it, from 1."""

    study: str
    patches: frozenset[int] = frozenset()


def kernel_of(names: Iterable[str]) -> Kernel:
    """What a commit with these files holds, whoever made it: a revert of one patch is read as well."""
    kept = list(names)
    study = next(name.removeprefix(STUDY) for name in kept if name.startswith(STUDY))
    return Kernel(study, frozenset(int(name.removeprefix(PATCH)) for name in kept if name.startswith(PATCH)))


@dataclass(frozen=True)
class Spread:
    """Standard deviations on logarithms."""

    boots: float
    runs: float

    @classmethod
    def of_share(cls, share: float) -> "Spread":
        """Of a published standard deviation, as a share of its mean."""
        variance = math.log1p(share**2)
        return cls(math.sqrt(BETWEEN_BOOTS * variance), math.sqrt((1 - BETWEEN_BOOTS) * variance))


@dataclass(frozen=True)
class Row:
    """One cell: its base mean, the ratio that each patch in turn makes, and the spreads without and with patches."""

    uarch: str
    benchmark: str
    case: str
    metric: str
    unit: str
    better: str
    core_type: str
    base: float
    steps: tuple[float, ...]
    spreads: tuple[Spread, Spread]
    expected: str
    parameters: tuple[tuple[str, str], ...] = ()

    @property
    def cell(self) -> tuple[str, str, str, str, str]:
        return self.uarch, self.benchmark, self.case, self.metric, self.core_type

    @property
    def is_counter(self) -> bool:
        return self.expected == "counter"


@dataclass(frozen=True)
class Study:
    """One published series; `patches` are the subjects of its patches."""

    name: str
    title: str
    patches: tuple[str, ...]
    rows: tuple[Row, ...]
    # Of a benchmark what words of its cases mean.
    words: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def uarchs(self) -> list[str]:
        return sorted({row.uarch for row in self.rows})

    @property
    def benchmarks(self) -> list[str]:
        return sorted({row.benchmark for row in self.rows})

    def without_effect(self, name: str) -> "Study":
        """The same machines, cells and spreads, and a series that changes nothing."""
        rows = tuple(replace(row, steps=(1.0,) * len(row.steps), expected="unchanged") for row in self.rows)
        return replace(self, name=name, title=f"{self.title}, without any effect", rows=rows)

    def only(self, **effects: bool) -> "Study":
        """The study in which microarchitectures that are named with False see no effect."""
        rows = (row if effects.get(row.uarch, True) else replace(row, steps=(1.0,)) for row in self.rows)
        return replace(self, rows=tuple(rows))


def slug(text: str) -> str:
    """A name as the service takes them."""
    return re.sub(r"[^A-Za-z0-9_]+", "-", text.replace("->", "-to-")).strip("-")[:_LONGEST_NAME]

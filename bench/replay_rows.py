"""Cells of published series as simulated machines measure them."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Spread:
    """Standard deviations on logarithms."""

    boots: float
    runs: float


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

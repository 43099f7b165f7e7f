"""What a simulated machine measures in one boot: a level of the boot, and the noise of its runs around it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np

from bench.replay_kernels import Kernel
from bench.replay_rows import Row, Study

_WARM_UP_SLOWER = 1.06


@dataclass(frozen=True)
class Moment:
    """Which boot it is. The same moment always gives the same values, whoever asks and however often."""

    seed: int
    session: str
    position: int

    def generator(self, row: Row) -> np.random.Generator:
        name = " ".join((self.session, *row.cell))
        return np.random.default_rng([self.seed, self.position, crc32(name.encode())])


class Truth:
    """All rows of all studies, by study and cell."""

    def __init__(self, studies: Iterable[Study]) -> None:
        self.studies = {study.name: study for study in studies}
        self._rows = {study.name: {row.cell: row for row in study.rows} for study in self.studies.values()}

    def rows_of(self, kernel: Kernel, uarch: str) -> list[Row]:
        """The rows that a kernel gives on a machine: those of its study."""
        return [row for row in self._rows.get(kernel.study, {}).values() if row.uarch == uarch]


def values_of(row: Row, kernel: Kernel, moment: Moment, *, runs: int, warmup: int) -> list[float]:
    """All values of one cell in one boot, warm-up first, with six digits as a program would print them."""
    level = row.base * float(np.prod([row.steps[index - 1] for index in sorted(kernel.patches)]))
    spread = row.spreads[1 if kernel.patches else 0]
    generator = moment.generator(row)
    boot = generator.normal(0, spread.boots)
    noise = generator.normal(0, spread.runs, runs)
    values = level * np.exp(boot + noise - (spread.boots**2 + spread.runs**2) / 2)
    values[:warmup] *= _WARM_UP_SLOWER if row.better == "lower" else 1 / _WARM_UP_SLOWER
    return [float(f"{value:.6g}") for value in values]


def boot_values(
    rows: Sequence[Row], kernel: Kernel, moment: Moment, orders: Sequence[Mapping[str, Any]]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Measurements and counters of one boot, as the protocol writes them, for the cases of an assignment."""
    ordered = {(order["benchmark"], order["case"]): order for order in orders}
    measured, counted = [], []
    for row in rows:
        order = ordered.get((row.benchmark, row.case))
        if order is None:
            continue
        place = {"benchmark": row.benchmark, "case": row.case, "core_type": row.core_type}
        if row.is_counter:
            value = values_of(row, kernel, moment, runs=1, warmup=0)[0]
            counted.append({**place, "event": row.metric, "value": value})
            continue
        values = values_of(row, kernel, moment, runs=order["runs"], warmup=order["warmup"])
        told = {"version": order["version"], "metric": row.metric, "values": values, "warmup": order["warmup"]}
        measured.append({**place, **told})
    return measured, counted

"""Cells of simulated boots, and running them as a session would, for the tests of the sequential design."""

from dataclasses import replace

import numpy as np

from server.stats import Cell
from server.stats.comparison.decisions import CellProgress, Design, State, judge_cells


def cells(effect: float, *, count: int, seed: int, min_effect: float = 0.01, spread: float = 0.01) -> list[Cell]:
    generator = np.random.default_rng(seed)
    base = np.exp(generator.normal(0, spread, (count, 16, 1)))
    patched = effect * np.exp(generator.normal(0, spread, (count, 16, 1)))
    return [Cell(list(b), list(p), better="lower", min_effect=min_effect) for b, p in zip(base, patched, strict=True)]


def until(cell: Cell, look: int) -> Cell:
    return replace(cell, base=cell.base[:look], patched=cell.patched[:look])


def run(sample: list[Cell], design: Design) -> tuple[list[CellProgress], float]:
    """Each cell until it is decided or given up; and the share of the boots that were used."""
    last: dict[int, tuple[CellProgress, int]] = {}
    live = list(range(len(sample)))
    for look in design.looks:
        judged = judge_cells([until(sample[index], look) for index in live], design)
        last |= {index: (progress, look) for index, progress in zip(live, judged, strict=True)}
        live = [index for index in live if last[index][0].state is State.OPEN]
    share = sum(used for _, used in last.values()) / (len(sample) * design.budget)
    return [last[index][0] for index in range(len(sample))], share

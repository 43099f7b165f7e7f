"""How often an all-clear stands although a cell truly moved, and what its figures say of it then.

    DJANGO_SETTINGS_MODULE=server.settings python -m bench.statistics.all_clears [--series 80] [--seed 8301] [--kit DIR]

A series here is one machine with quiet cells (boots differ by 0.4 %) and noisy ones (2 to 8 %), boots bought look by
look until no cell is open, judged as the service judges. The change is in some of the noisy cells alone: the quiet ones
would show it. "Before" is the rule that one noisy cell takes the all-clear away.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import django
import numpy as np

from bench.kit import BESIDE, Kit, KitError, open_kit
from bench.table import table
from server import stats
from server.stats.comparison.decisions import CellProgress, Design, State, judge_cells

django.setup()

from server.detection.findings.vector import UarchVerdict, uarch_verdicts  # noqa: E402 (of models)
from server.detection.models import Comparison, Verdict  # noqa: E402
from server.detection.models.finding import CHANGES  # noqa: E402
from server.detection.trials.judgement import MeasuredCell, row_of, seen  # noqa: E402
from server.lab.models import CoreType, Machine, Microarchitecture, Session  # noqa: E402
from server.results.models import Benchmark, Case, Metric  # noqa: E402

CELLS = 50
_QUIET = 0.004
_NOISY = (0.02, 0.08)
_MIN_EFFECT = 0.01
_RUNS = 3
# Beside what boots differ by.
_BETWEEN_RUNS = 0.5
SIZES = (0.02, 0.03, 0.05, 0.08, 0.12)
MOVED = (1, 3, 10)


@dataclass(frozen=True)
class Simulation:
    """One simulated series: what it was told before the rule, and what with it."""

    before: str
    now: str
    leans: bool
    missed: float
    named: bool


def simulated(generator: np.random.Generator, *, noisy: int, moved: int, effect: float) -> list[stats.Cell]:
    """The first cells are the noisy ones, the first of them moved."""
    made = []
    for number in range(CELLS):
        spread = generator.uniform(*_NOISY) if number < noisy else _QUIET
        boots = generator.normal(0, spread, (2, Design().budget, 1))
        boots = boots + generator.normal(0, spread * _BETWEEN_RUNS, (2, Design().budget, _RUNS))
        boots[1] += np.log1p(effect) * (number < moved)
        base, patched = np.exp(boots)
        made.append(stats.Cell(list(base), list(patched), "lower", _MIN_EFFECT))
    return made


def told_of(cells: Sequence[stats.Cell], moved: int) -> Simulation:
    progress = _session(cells)
    family = stats.judge_family([seen(*pair) for pair in zip(cells, progress, strict=True)])
    rows = [_row(number, *pair) for number, pair in enumerate(zip(cells, family, strict=True))]
    uarch = rows[0].session.machine.uarch
    component = uarch_verdicts([uarch], rows, ())[0]
    own = {f"time of cell-{number:02}" for number in range(moved)}
    return Simulation(
        before=_before(rows),
        now=component.verdict,
        leans=bool(component.leaning),
        missed=component.coverage.missed or 0.0,
        named=_names(component, own),
    )


def _names(component: UarchVerdict, own: set[str]) -> bool:
    return any(cell.name in own for cell in component.leaning)


def _session(cells: Sequence[stats.Cell]) -> list[CellProgress]:
    """All cells have the boots of the session, which ends when none of them is open."""
    design = Design()
    for boots in design.looks:
        shown = [stats.Cell(one.base[:boots], one.patched[:boots], one.better, one.min_effect) for one in cells]
        progress = judge_cells(shown, design)
        if all(one.state is not State.OPEN for one in progress):
            break
    return progress


_SESSION = Session(pk=1, machine=Machine(pk=1, name="m", uarch=Microarchitecture(pk=1, name="uarch")))
_BENCHMARK = Benchmark(pk=1, name="bench")
_METRIC = Metric(pk=1, name="time", better=Metric.Better.LOWER)
_CORES = CoreType(pk=1, name="all")


def _row(number: int, values: stats.Cell, result: stats.CellComparison) -> Comparison:
    case = Case(pk=1 + number, name=f"cell-{number:02}", benchmark=_BENCHMARK)
    return row_of(MeasuredCell(_SESSION, case, _METRIC, _CORES, values), result)


def _before(rows: Sequence[Comparison]) -> str:
    verdicts = {row.verdict for row in rows}
    if verdicts.intersection(CHANGES):
        return "changed"
    return Verdict.UNCHANGED if verdicts == {Verdict.UNCHANGED} else Verdict.INCONCLUSIVE


def quiet_table(generator: np.random.Generator, series: int) -> str:
    """Without any effect: by how many of the cells are noisy."""
    head = [f"noisy of {CELLS}", "unchanged before", "unchanged", "of these leaning", "inconclusive", "changed"]
    body = []
    for noisy in (0, 2, 10, 22, 30):
        found = [told_of(simulated(generator, noisy=noisy, moved=0, effect=0), 0) for _ in range(series)]
        body.append([str(noisy), *_shares(found)])
    return table(head, body)


def _shares(found: Sequence[Simulation]) -> list[str]:
    clear = [one for one in found if one.now == Verdict.UNCHANGED]
    figures = (
        np.mean([one.before == Verdict.UNCHANGED for one in found]),
        np.mean([one.now == Verdict.UNCHANGED for one in found]),
        np.mean([one.leans for one in clear]) if clear else 0.0,
        np.mean([one.now == Verdict.INCONCLUSIVE for one in found]),
        np.mean([one.now in (*CHANGES, "split") for one in found]),
    )
    return [f"{figure:.3f}" for figure in figures]


def moved_table(generator: np.random.Generator, series: int, moved: int) -> str:
    """With a change in some of 22 noisy cells: what is told, and whether the all-clears leave room for the change."""
    told = ["unchanged before", "unchanged", "it is named", "figures exclude it", "inconclusive", "changed"]
    body = []
    for effect in SIZES:
        found = [told_of(simulated(generator, noisy=22, moved=moved, effect=effect), moved) for _ in range(series)]
        clear = [one for one in found if one.now == Verdict.UNCHANGED]
        before, now, _, open_, changed = _shares(found)
        named = np.mean([one.named for one in clear]) if clear else 0.0
        excluded = np.mean([one.missed < effect for one in clear]) if clear else 0.0
        body.append([f"{100 * effect:.0f} %", before, now, f"{named:.3f}", f"{excluded:.3f}", open_, changed])
    return table([f"{moved} moved by", *told], body)


def kit_table(kit: Kit, seed: int, series: int) -> str:
    """Pairs of equal kernels as the kit simulates them, with spreads and runs of its own, so many to a series."""
    config = kit.simulate.AB | {
        "designs": [(Design().budget, _RUNS)],
        "nulls": CELLS * series,
        "powers": 0,
        "patches": 0,
    }
    pairs = [pair for pair in kit.simulate.ab_pairs(config, seed) if pair["kind"] == "null"]
    cells = [stats.Cell(pair["base"], pair["patched"], "lower", _MIN_EFFECT) for pair in pairs]
    np.random.default_rng(seed).shuffle(cells)
    found = [told_of(cells[start : start + CELLS], 0) for start in range(0, len(cells) - CELLS + 1, CELLS)]
    head = ["pairs of the kit", "unchanged before", "unchanged", "of these leaning", "inconclusive", "changed"]
    return table(head, [[f"{len(found)} series", *_shares(found)]])


def report(kit: Kit | None, seed: int, series: int) -> Iterator[str]:
    generator = np.random.default_rng(seed)
    yield f"{series} series a row, {CELLS} cells each, seed {seed}; no effect"
    yield quiet_table(generator, series)
    if kit is not None:
        yield kit_table(kit, seed, series)
    yield "A change in some of 22 noisy cells"
    for moved in MOVED:
        yield moved_table(generator, series, moved)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.statistics.all_clears", description="all-clears, and what they may hide"
    )
    parser.add_argument("--kit", type=Path, default=BESIDE, help="folder of the evaluation kit")
    parser.add_argument("--series", type=int, default=80)
    parser.add_argument("--seed", type=int, default=8301)
    chosen = parser.parse_args(arguments)
    try:
        for part in report(open_kit(chosen.kit), chosen.seed, chosen.series):
            print(f"{part}\n", flush=True)
    except KitError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

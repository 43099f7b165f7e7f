"""The sequential design against the fixed one that runs all its boots: boots used, false alarms, power.

    python -m bench.statistics.sequential [--kit DIR] [--nulls 2400] [--seed 7001]

The mix is that of the kit's pairs (no effect, effects of 2, 5 and 10 %, published patches), with as many boots as the
design may use and 1, 3 or 5 runs in each. Cells are run one by one as a session would: until decided or given up.
"Differs" is the test of "no difference" with no minimum effect; verdicts are those with a minimum effect of 1 %.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.kit import BESIDE, Kit, KitError, Row, open_kit
from bench.table import table
from server.stats import Cell, CellComparison, StatisticalVerdict, compare
from server.stats.comparison.decisions import CellProgress, Design, State, next_step

RUNS = (1, 3, 5)
MIN_EFFECT = 0.01
# In the kit half of the patches leave this microarchitecture as it was.
SOMETIMES_EQUAL = "neoverse-n1"
CHANGES = (StatisticalVerdict.IMPROVED, StatisticalVerdict.REGRESSED)


@dataclass(frozen=True)
class Outcome:
    """One simulated cell, and what each design said of it after how many boots a side."""

    row: Row
    fixed: CellComparison
    last: CellProgress
    boots: int


def simulate(kit: Kit, seed: int, nulls: int, boots: int) -> list[Row]:
    """The kit's pairs and its published patches in its own proportions, all with `boots` boots a side."""
    designs = [(boots, runs) for runs in RUNS]
    config = kit.simulate.AB | {"designs": designs, "nulls": nulls, "powers": nulls // 3, "patches": 0}
    made: list[Row] = kit.simulate.ab_pairs(config, seed)
    generator = np.random.default_rng([seed, 1])
    for group in range(nulls // 10):
        for uarch, (spreads, bounds) in kit.simulate.UARCH_EFFECTS.items():
            jitter, icc = generator.uniform(0.7, 1.4), float(generator.choice(config["icc"]))
            spread, effect = (spreads[0] * jitter, spreads[1] * jitter), generator.uniform(*bounds)
            if uarch == SOMETIMES_EQUAL and generator.random() < 1 / 2:
                effect = 0.0
            name = f"patch{group}/{uarch}"
            made.append(kit.simulate.ab_pair(generator, config, name, "patch", boots, 3, spread, icc, effect, "plain"))
    return made


def cell(row: Row, min_effect: float, boots: int) -> Cell:
    base, patched = row["base"][:boots], row["patched"][:boots]
    return Cell(base, patched, "lower", min_effect, 0.0, row["base_pos"][:boots], row["patched_pos"][:boots])


def run(rows: Sequence[Row], min_effect: float, design: Design) -> list[Outcome]:
    """Every row alone, look by look."""
    fixed = compare([cell(row, min_effect, design.budget) for row in rows], alpha=design.alpha)
    last: dict[int, tuple[CellProgress, int]] = {}
    live = list(range(len(rows)))
    for boots in design.looks:
        progress = next_step([cell(rows[index], min_effect, boots) for index in live], design)
        last |= {index: (one, boots) for index, one in zip(live, progress.cells, strict=True)}
        live = [index for index in live if last[index][0].state is State.OPEN]
    return [Outcome(row, fixed[index], *last[index]) for index, row in enumerate(rows)]


def report(kit: Kit, seed: int, nulls: int) -> Iterator[str]:
    design = Design()
    rows = simulate(kit, seed, nulls, design.budget)
    for min_effect in (0.0, MIN_EFFECT):
        outcomes = run(rows, min_effect, design)
        yield f"Minimum effect {100 * min_effect:g} %, {len(rows)} pairs, seed {seed}"
        yield comparison_table(outcomes, design)
    yield error_note(outcomes)


def comparison_table(outcomes: Sequence[Outcome], design: Design) -> str:
    head = ["", "pairs", "boots", "differs", "fixed", "verdict", "fixed", "unchanged", "fixed"]
    body = []
    for name, group in groups(outcomes):
        judged = [(outcome.last.verdict, outcome.fixed.verdict) for outcome in group]
        figures = [
            np.mean([outcome.boots / design.budget for outcome in group]),
            np.mean([outcome.last.differs for outcome in group]),
            np.mean([_fixed_p(outcome) <= design.alpha for outcome in group]),
            *(np.mean([pair[which] in CHANGES for pair in judged]) for which in (0, 1)),
            *(np.mean([pair[which] is StatisticalVerdict.UNCHANGED for pair in judged]) for which in (0, 1)),
        ]
        body.append([name, str(len(group)), *(f"{figure:.3f}" for figure in figures)])
    return table(head, body)


def _fixed_p(outcome: Outcome) -> float:
    """What could not be tested is not called different."""
    return 1.0 if outcome.fixed.p_value is None else outcome.fixed.p_value


def groups(outcomes: Sequence[Outcome]) -> Iterator[tuple[str, list[Outcome]]]:
    yield "all", list(outcomes)
    nulls = [outcome for outcome in outcomes if outcome.row["kind"] == "null"]
    yield "no effect", nulls
    for key, what in (("samples", "{} runs"), ("trait", "{}"), ("icc", "correlation {}")):
        for value in sorted({outcome.row[key] for outcome in nulls}):
            yield f"  {what.format(value)}", [outcome for outcome in nulls if outcome.row[key] == value]
    for size in sorted({outcome.row["size"] for outcome in outcomes if "size" in outcome.row}):
        yield f"effect {100 * size:g} %", [outcome for outcome in outcomes if outcome.row.get("size") == size]
    yield "patches", [outcome for outcome in outcomes if outcome.row["kind"] == "patch"]


def error_note(outcomes: Sequence[Outcome]) -> str:
    nulls = sum(outcome.row["kind"] == "null" for outcome in outcomes)
    error = (0.05 * 0.95 / nulls) ** 0.5
    return f"A rate of 0.05 over the {nulls} pairs without effect has a standard error of {error:.4f}."


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.statistics.sequential", description="boots, false alarms and power"
    )
    parser.add_argument("--kit", type=Path, default=BESIDE, help="folder of the evaluation kit")
    parser.add_argument("--nulls", type=int, default=2400, help="pairs without effect for each number of runs")
    parser.add_argument("--seed", type=int, default=7001)
    chosen = parser.parse_args(arguments)
    try:
        for part in report(open_kit(chosen.kit), chosen.seed, chosen.nulls):
            print(f"{part}\n", flush=True)
    except KitError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

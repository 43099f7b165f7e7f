"""The smaller parts of the report: published rows, the sequential design, time and memory."""

from pathlib import Path

from bench import memory, published, sequential, speed
from bench.bars import Figures
from bench.kit import Kit, simulated
from server.stats.sequential import Design

SEED = 9001
# Pairs without a difference for each number of runs: the rate of 5 % then has a standard error below 0.005.
SEQUENTIAL_NULLS = 700


def published_rows(cases: Path) -> tuple[list[published.Outcome], str]:
    rows, others = published.read_cases(cases)
    outcomes = published.outcomes(rows, seeds=200, min_effect=0.01)
    return outcomes, published.report(outcomes, others, everything=False)


def sequential_design(kit: Kit) -> tuple[Figures, str]:
    """Boots used by the sequential design as a share of the fixed one's, tested against "no difference"."""
    design = Design()
    rows = sequential.simulate(kit, SEED, SEQUENTIAL_NULLS, design.budget)
    outcomes = sequential.run(rows, 0.0, design)
    groups = dict(sequential.groups(outcomes))
    share = sum(outcome.boots for outcome in groups["all"]) / design.budget / len(outcomes)
    false = sum(outcome.last.differs for outcome in groups["no effect"]) / len(groups["no effect"])
    text = f"Sequential design, boots as a share of {design.budget} a side; no minimum effect\n"
    return {"boots_share": share, "sequential_fpr": false}, text + sequential.comparison_table(outcomes, design)


def costs_of(kit: Kit) -> Figures:
    rows = list(speed.long_histories(kit).rows)
    fleet = [row for histories in simulated(kit, None) for row in histories.rows]
    return {
        "ms_history": speed.ms_history(rows),
        "ms_in_fleet": speed.ms_history_in_fleet(rows),
        "ms_per_1000": speed.ms_per_1000_points(fleet),
        "ms_cells": speed.ms_cells(),
        **memory.in_own_process(),
    }

"""The smaller parts of the report: published rows, the sequential design, time and memory."""

import argparse
import os
import secrets
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# Before numpy is loaded: times are those of one core.
os.environ.update({"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"})

from pathlib import Path

from bench.kit import BESIDE, PEERS, WIDE, Kit, KitError, open_kit, simulated
from bench.statistics import comparisons, memory, published, sequential
from bench.statistics.comparisons import rates_table
from bench.table import BARS, DESIGNS, SIZES, Figures, bars_table, by_seed, mean_and_error
from server.stats.comparison.decisions import Design

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
    rows = list(comparisons.long_histories(kit).rows)
    fleet = [row for histories in simulated(kit, None) for row in histories.rows]
    return {
        "ms_history": comparisons.ms_history(rows),
        "ms_in_fleet": comparisons.ms_history_in_fleet(rows),
        "ms_per_1000": comparisons.ms_per_1000_points(fleet),
        "ms_cells": comparisons.ms_cells(),
        **memory.in_own_process(),
    }


# The statistics of Tidemark against their bars and against existing methods, in one table.
#
#     python -m bench.statistics [--kit DIR] [--seed N] [--seeds 3] [--online 1] [--ab-seeds 10] [--no-peers]
#
# Data are those of the evaluation kit and simulations that are drawn afresh; their first seed is printed. Nothing is
# written but the peers' environments and
# answers in .cache/bench. One core and one process are used at a time.

FLEET_FIGURES = (
    "strict_f1",
    "strict_precision",
    "strict_recall",
    "detectable_f1",
    "null_sim",
    "null_worst_trait",
    "delay",
    "found",
    "repeated",
)
PAIR_FIGURES = (
    "fpr",
    *(f"fpr_{design}" for design in DESIGNS),
    "fpr_worst_trait",
    *(f"power_{size}" for size in SIZES),
)


@dataclass(frozen=True)
class Amount:
    """How much is measured; fresh sets are those of `first` and the seeds after it."""

    first: int
    seeds: int
    online: int
    ab_seeds: int
    shifted: int
    peers: bool
    peer_rows: int | None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.statistics", description="figures against bars and peers")
    parser.add_argument("--kit", type=Path, default=BESIDE, help="folder of the evaluation kit")
    parser.add_argument("--cases", type=Path, default=published.CASES, help="published results")
    parser.add_argument("--seed", type=int, help="of the first fresh set; drawn where it is left out")
    parser.add_argument("--seeds", type=int, default=3, help="fresh fleets of wide ranges beside the development set")
    parser.add_argument("--online", type=int, default=1, help="fleets looked at again and again, development first")
    parser.add_argument("--ab-seeds", type=int, default=10, help="fresh sets of simulated pairs")
    parser.add_argument("--shifted", type=int, default=2, help="sets of pairs in wide ranges, for information")
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="leave other libraries out")
    parser.add_argument("--rows", type=int, help="only so many rows of each set for the peers")
    chosen = parser.parse_args(arguments)
    amount = Amount(
        first=secrets.randbelow(10**6) if chosen.seed is None else chosen.seed,
        seeds=chosen.seeds,
        online=chosen.online,
        ab_seeds=chosen.ab_seeds,
        shifted=chosen.shifted,
        peers=chosen.peers,
        peer_rows=chosen.rows,
    )
    try:
        for part in report(open_kit(chosen.kit), chosen.cases, amount):
            print(f"{part}\n", flush=True)
    except KitError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    return 0


def report(kit: Kit, cases: Path, amount: Amount) -> Iterator[str]:
    """The parts of the report as they become known; the table of bars comes last."""
    started = time.perf_counter()
    yield f"The first fresh seed is {amount.first}."
    outcomes, first = published_rows(cases)
    yield first
    pairs = {seed: comparisons.compare_set(kit, seed) for seed in _seeds(amount, amount.ab_seeds)}
    together = comparisons.pooled(kit, list(pairs.values()))
    yield by_seed("pairs", PAIR_FIGURES, {seed: compared.figures for seed, compared in pairs.items()})
    yield rates_table(together.pairs, together.ours, together.theirs)
    boots, stopped = sequential_design(kit)
    yield stopped
    found = _searched(kit, amount)
    yield by_seed("simulated fleet", FLEET_FIGURES, found)
    costs = {**costs_of(kit), **boots, "published": published.share_right(outcomes)}
    fresh, _ = mean_and_error([figures for seed, figures in found.items() if seed is not None])
    ours = [
        ("dev", {**found[None], **pairs[None].figures, **costs}),
        (f"fresh ({amount.seeds}, {amount.ab_seeds})", {**fresh, **together.figures}),
    ]
    others = [*_shifted(kit, amount), ("t on boots", together.peer_figures)]
    if amount.peers:
        others += [(peer.name, comparisons.peer(kit, peer, amount.peer_rows)) for peer in PEERS]
    yield bars_table(BARS, ours, others)
    yield _remarks(costs, amount, time.perf_counter() - started)


def _searched(kit: Kit, amount: Amount) -> dict[int | None, Figures]:
    """Figures of every fleet; they take the longest, so each is told when it is done."""
    seeds = _seeds(amount, amount.seeds)
    found: dict[int | None, Figures] = {}
    for seed in seeds:
        started = time.process_time()
        found[seed] = comparisons.tidemark(kit, seed, WIDE, online=seed in seeds[: amount.online])
        spent = time.process_time() - started
        print(f"fleet {seed or 'dev'}: strict F1 {found[seed]['strict_f1']:.3f}, {spent:.0f} s", file=sys.stderr)
    return found


def _shifted(kit: Kit, amount: Amount) -> list[tuple[str, Figures]]:
    """Our own figures on pairs in other ranges than the bars are meant for."""
    seeds = _seeds(amount, amount.shifted)[1:]
    if not seeds:
        return []
    pairs = comparisons.pooled(kit, [comparisons.compare_set(kit, seed, WIDE) for seed in seeds])
    return [(f"wide pairs ({amount.shifted})", pairs.figures)]


def _seeds(amount: Amount, count: int) -> list[int | None]:
    """The development set and fresh ones."""
    return [None, *range(amount.first, amount.first + count)]


def _remarks(costs: Figures, amount: Amount, seconds: float) -> str:
    peers = "all rows" if amount.peer_rows is None else f"the first {amount.peer_rows} rows of each set"
    lines = (
        f"5000 timelines of 500 points take {costs['seconds']:.1f} s in one call.",
        "* tuned on the development sets; rbf and l2 are ruptures.",
        f"Peers saw {peers} of the development sets; t on boots the same pairs as ours, fresh ones too.",
        f"{seconds:.0f} s in all.",
    )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())

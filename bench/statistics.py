"""The statistics of Tidemark against their bars and against existing methods, in one table.

    python -m bench.statistics [--kit DIR] [--seeds 3] [--online 1] [--ab-seeds 10] [--no-peers]

Data are those of the evaluation kit and fresh simulations. Nothing is written but the peers' environments and answers
in .cache/bench. One core and one process are used at a time.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

# Before numpy is loaded: times are those of one core.
os.environ.update({"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"})

from bench import comparisons, fleets, published
from bench.bars import BARS, Figures
from bench.kit import BESIDE, Kit, KitError, open_kit
from bench.parts import costs_of, published_rows, sequential_design
from bench.peers import PEERS
from bench.ranges import SHIFTED
from bench.rates import rates_table
from bench.scores import DESIGNS, SIZES, mean_and_error
from bench.table import bars_table, by_seed

# Far from the seeds of the kit's own sets.
FIRST_SEED = 9001
FLEET_FIGURES = (
    "strict_f1",
    "strict_precision",
    "strict_recall",
    "detectable_f1",
    "null_sim",
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
    """How much is measured."""

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
    parser.add_argument("--seeds", type=int, default=3, help="fresh simulated fleets beside the development set")
    parser.add_argument("--online", type=int, default=1, help="fleets looked at again and again, development first")
    parser.add_argument("--ab-seeds", type=int, default=10, help="fresh sets of simulated pairs")
    parser.add_argument("--shifted", type=int, default=2, help="sets of either kind in other ranges, for information")
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="leave other libraries out")
    parser.add_argument("--rows", type=int, help="only so many rows of each set for the peers")
    chosen = parser.parse_args(arguments)
    amount = Amount(
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
    outcomes, first = published_rows(cases)
    yield first
    pairs = {seed: comparisons.compare_set(kit, seed) for seed in _seeds(amount.ab_seeds)}
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
    others = [*_shifted(kit, amount.shifted), ("t on boots", together.peer_figures)]
    if amount.peers:
        others += [(peer.name, fleets.peer(kit, peer, amount.peer_rows)) for peer in PEERS]
    yield bars_table(BARS, ours, others)
    yield _remarks(costs, amount, time.perf_counter() - started)


def _searched(kit: Kit, amount: Amount) -> dict[int | None, Figures]:
    """Figures of every fleet; they take the longest, so each is told when it is done."""
    watched = _seeds(amount.seeds)[: amount.online]
    found: dict[int | None, Figures] = {}
    for seed in _seeds(amount.seeds):
        started = time.process_time()
        found[seed] = fleets.tidemark(kit, seed, online=seed in watched)
        spent = time.process_time() - started
        print(f"fleet {seed or 'dev'}: strict F1 {found[seed]['strict_f1']:.3f}, {spent:.0f} s", file=sys.stderr)
    return found


def _shifted(kit: Kit, count: int) -> list[tuple[str, Figures]]:
    """Our own figures in other ranges than the bars are meant for."""
    seeds = _seeds(count)[1:]
    if not seeds:
        return []
    means, _ = mean_and_error([fleets.tidemark(kit, seed, SHIFTED, online=False) for seed in seeds])
    pairs = comparisons.pooled(kit, [comparisons.compare_set(kit, seed, SHIFTED) for seed in seeds])
    return [(f"shifted ({count})", {**means, **pairs.figures})]


def _seeds(count: int) -> list[int | None]:
    """The development set and fresh ones."""
    return [None, *range(FIRST_SEED, FIRST_SEED + count)]


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

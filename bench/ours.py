"""Tidemark's own predictions, from rows without what a detector may not know."""

from collections.abc import Iterator, Sequence

from bench.kit import Row
from server.stats.ab_rows import run
from server.stats.cpd_rows import predict

# What the simulator or a labeller knows.
_LABELS = ("annotations", "upstream", "truth", "minor", "machine_steps", "null", "index")
_SETTINGS = ("traits", "trait", "run_sd", "effect", "z", "icc", "kind", "size", "patch")
TRUTH = frozenset(_LABELS + _SETTINGS)


def without_truth(rows: Sequence[Row]) -> Iterator[Row]:
    for row in rows:
        yield {key: value for key, value in row.items() if key not in TRUTH}


def search(rows: Sequence[Row], tasks: Sequence[Row] = ()) -> list[Row]:
    """Change points of all rows together: those of one world are a fleet."""
    return list(predict(list(without_truth(rows)), list(without_truth(tasks))))


def compare(rows: Sequence[Row]) -> list[Row]:
    return list(run(list(without_truth(rows))))

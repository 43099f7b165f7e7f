"""Pairs of kernels as rows of plain values, and what the comparison says of them: for measuring it on known truth."""

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from server.stats.cells import Cell, Comparison
from server.stats.comparison import compare


def run(rows: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """One prediction for each row, in their order.

    A row has `id`, `base` and `patched` as [boot][run], and may have `base_pos` and `patched_pos`, the order of the
    boots. A prediction has `id`, `p`, `est` with `lo` and `hi` (the 95 % interval of patched / base - 1), and
    `time_s`, its share of the time of all.
    """
    kept = list(rows)
    cells = [_cell(row) for row in kept]
    started = time.perf_counter()
    results = compare(cells)
    spent = (time.perf_counter() - started) / max(1, len(kept))
    for row, result in zip(kept, results, strict=True):
        yield {"id": row["id"], **_figures(result), "time_s": spent}


def _cell(row: Mapping[str, Any]) -> Cell:
    return Cell(
        base=row["base"],
        patched=row["patched"],
        better="lower",
        min_effect=0.0,
        base_positions=row.get("base_pos"),
        patched_positions=row.get("patched_pos"),
        name=str(row["id"]),
    )


def _figures(result: Comparison) -> dict[str, float | None]:
    return {
        # What could not be tested is no evidence of a difference.
        "p": 1.0 if result.p_value is None else result.p_value,
        "est": _change(result.ratio),
        "lo": _change(result.ratio_low),
        "hi": _change(result.ratio_high),
    }


def _change(ratio: float | None) -> float | None:
    return None if ratio is None or not math.isfinite(ratio) else ratio - 1

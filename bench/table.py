"""Plain tables for a terminal or a file."""

import math
from collections.abc import Mapping, Sequence

from bench.bars import Bar, Figures
from bench.scores import mean_and_error


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The first column is text and stands left, the others stand right."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]

    def line(row: Sequence[str]) -> str:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        return "  ".join(cells).rstrip()

    return "\n".join([line(head), "  ".join("-" * width for width in widths), *(line(row) for row in rows)])


def figure(value: float | None, digits: int) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def mark(bar: Bar, figures: Sequence[float | None]) -> str:
    """A bar holds when it holds on every set that it was measured on; a pooled figure is judged on the last one."""
    known = [value for value in figures if value is not None and not math.isnan(value)]
    if not known:
        return "not measured"
    if bar.pooled:
        known = known[-1:]
    return "pass" if all(bar.holds(value) for value in known) else "FAIL"


def bars_table(bars: Sequence[Bar], ours: Sequence[tuple[str, Figures]], peers: Sequence[tuple[str, Figures]]) -> str:
    """Best known, bar, our figures on each of our sets and whether they hold, then the peers' figures."""
    head = ["", "best known", "bar", *(name for name, _ in ours), "", *(name for name, _ in peers)]
    rows = []
    for bar in bars:
        mine = [figures.get(bar.key) for _, figures in ours]
        others = [figures.get(bar.key) for _, figures in peers]
        shown = [figure(value, bar.digits) for value in mine]
        rows.append(
            [bar.what, bar.best_known, bar.wanted, *shown, mark(bar, mine)]
            + [figure(value, bar.digits) for value in others]
        )
    return table(head, rows)


def by_seed(what: str, keys: Sequence[str], found: Mapping[int | None, Figures]) -> str:
    """Each set in a row, and the mean of the fresh ones with its standard error."""
    means, errors = mean_and_error([figures for seed, figures in found.items() if seed is not None])
    named = [("dev" if seed is None else f"seed {seed}", figures) for seed, figures in found.items()]
    named += [("mean of fresh", means), ("+-", errors)]
    rows = [[name, *(figure(figures.get(key), 3) for key in keys)] for name, figures in named]
    return table([what, *keys], rows)

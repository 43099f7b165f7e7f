"""Figures beside their bars: what is asked, what the kit's reports say, and plain tables."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.kit import Histories, Kit, Pairs, Row

Figures = Mapping[str, float]


@dataclass(frozen=True)
class Bar:
    """`key` names the figure; it must lie between `low` and `high`.

    A `pooled` figure is a rate of rare events: one set alone is too small to judge it.
    """

    what: str
    key: str
    best_known: str
    low: float = -math.inf
    high: float = math.inf
    digits: int = 2
    pooled: bool = False

    def holds(self, figure: float) -> bool:
        return self.low <= figure <= self.high

    @property
    def wanted(self) -> str:
        if math.isinf(self.low):
            return f"<= {self.high:g}"
        return f">= {self.low:g}" if math.isinf(self.high) else f"{self.low:g} to {self.high:g}"


# The rate of a nominal 5 % test that is still called honest: too few false alarms are lost power.
_RATE = (0.035, 0.06)

BARS = (
    Bar("real histories, F1", "perf_f1", "0.88", low=0.90, digits=3),
    Bar("real histories, covering", "perf_covering", "0.84", low=0.86, digits=3),
    Bar("Turing set, F1", "tcpd_f1", "0.74", low=0.80, digits=3),
    Bar("simulated fleet, strict F1", "strict_f1", "0.51 - 0.74", low=0.82, digits=3),
    Bar("  changes with z >= 5, F1", "detectable_f1", "0.71 - 0.80", low=0.85, digits=3),
    Bar("false alarms / 1000, real, no change", "null_real", "0.16 - 12", high=0.5),
    Bar("false alarms / 1000, simulated, no change", "null_sim", "0.45 - 40", high=1.0),
    Bar("  in the worst kind of noise", "null_worst_trait", "", high=2.0),
    Bar("first report after, points (median)", "delay", "2 - 12", high=4, digits=1),
    Bar("  found at all", "found", "0.88, 0.58", low=0.93, digits=3),
    Bar("  false alarms / 1000, looked at repeatedly", "repeated", "7.8, 0.12", high=1.5),
    Bar("A/B false positives, all", "fpr", "0.03 - 0.25", *_RATE, digits=4, pooled=True),
    Bar("  3 boots x 5 runs", "fpr_3x5", "", *_RATE, digits=4, pooled=True),
    Bar("  5 x 3", "fpr_5x3", "", *_RATE, digits=4, pooled=True),
    Bar("  7 x 3", "fpr_7x3", "", *_RATE, digits=4, pooled=True),
    Bar("  10 x 5", "fpr_10x5", "", *_RATE, digits=4, pooled=True),
    Bar("  worst trait", "fpr_worst_trait", "", high=0.07, digits=4, pooled=True),
    Bar("A/B power at 2 %, false positives at 5 %", "power_2", "0.49", low=0.50, digits=3, pooled=True),
    Bar("  at 5 %", "power_5", "0.80", low=0.81, digits=3, pooled=True),
    Bar("  at 10 %", "power_10", "0.91", low=0.92, digits=3, pooled=True),
    Bar("95 % interval, coverage", "coverage", "0.96", 0.94, 0.96, digits=4, pooled=True),
    Bar("  width / that of t on boot means", "width", "1.00", high=0.93, digits=3, pooled=True),
    Bar("boots per verdict / fixed 16", "boots_share", "1.0", high=0.55, digits=3),
    Bar("  false positives of it", "sequential_fpr", "", *_RATE, digits=4),
    Bar("published rows with their verdict", "published", "", low=1.0, digits=3),
    Bar("history of 1000 points, ms", "ms_history", "4 - 1085", high=15, digits=1),
    Bar("  in a fleet of 21, each", "ms_in_fleet", "", high=15, digits=1),
    Bar("  simulated fleets, ms per 1000 points", "ms_per_1000", "4 - 2230", high=15, digits=1),
    Bar("2000 cells of 7 x 3, ms", "ms_cells", "600 - 98000", high=60, digits=0),
    Bar("5000 timelines of 500 points, peak MB", "memory_mb", "", high=300, digits=0),
)


DESIGNS = ("3x5", "5x3", "7x3", "10x5")
SIZES = (2, 5, 10)


def score_recorded(kit: Kit, histories: Histories, predictions: Sequence[Row]) -> Figures:
    report = kit.evaluate.evaluate_cpd(histories.rows, predictions)
    if "annotated" in report:
        annotated = report["annotated"]
        return {f"{histories.name}_f1": annotated["f1"], f"{histories.name}_covering": annotated["covering"]}
    return {histories.name: report["null"]["false_per_1000"]}


def score_simulated(kit: Kit, changing: Histories, quiet: Histories, predictions: Sequence[Row]) -> Figures:
    report = kit.evaluate.evaluate_cpd([*changing.rows, *quiet.rows], predictions, changing.tasks)
    fleet = report["simulated"]
    figures = {
        "strict_f1": fleet["strict"]["f1"],
        "strict_precision": fleet["strict"]["precision"],
        "strict_recall": fleet["strict"]["recall"],
        "lenient_f1": fleet["lenient"]["f1"],
        "detectable_f1": fleet["detectable"]["f1"],
        "null_sim": report["null"]["false_per_1000"],
        "null_worst_trait": max(report["null"].get("false_per_1000_by_trait", {"": math.nan}).values()),
        "ms_on_clock": report["runtime"]["ms_per_1000_points"],
    }
    online = report.get("online")
    if online:
        figures |= {"delay": online["delay_median"], "found": online["found"]}
        figures |= {"repeated": online["false_per_1000_repeated_looks"]}
    return figures


def score_pairs(kit: Kit, pairs: Pairs, predictions: Sequence[Row]) -> Figures:
    """False positives, power at a true 5 %, and the interval; `median_width` is no ratio yet."""
    report = kit.evaluate.evaluate_ab(pairs.rows, predictions)
    rates = report["false_positive_rate"]
    figures = {"fpr": rates["all"]["rate"], "fpr_worst_trait": max(rate["rate"] for rate in rates["by_trait"].values())}
    figures |= {f"fpr_{design}": rate["rate"] for design, rate in rates["by_design"].items()}
    figures |= {f"power_{size}": report["power_at_true_alpha"][f"{size}%"] for size in SIZES}
    interval = report["interval"]
    figures |= {"coverage": interval["coverage"], "median_width": interval["median_width"]}
    figures |= {"ms_pair": report["runtime"]["ms_per_pair"]}
    return figures


def relative_width(ours: Figures, t_on_boots: Figures) -> Figures:
    return {**ours, "width": ours["median_width"] / t_on_boots["median_width"]}


def mean_and_error(sets: Sequence[Figures]) -> tuple[Figures, Figures]:
    """Mean of every figure over sets, and its standard error (nan with one set)."""
    keys = sorted({key for figures in sets for key in figures})
    means, errors = {}, {}
    for key in keys:
        values = [figures[key] for figures in sets if key in figures]
        means[key] = sum(values) / len(values)
        squares = sum((value - means[key]) ** 2 for value in values)
        errors[key] = math.sqrt(squares / (len(values) - 1) / len(values)) if len(values) > 1 else math.nan
    return means, errors


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

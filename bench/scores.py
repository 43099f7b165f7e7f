"""The kit's reports, made into the figures that the bars speak of."""

import math
from collections.abc import Sequence

from bench.bars import Figures
from bench.kit import Histories, Kit, Pairs, Row

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

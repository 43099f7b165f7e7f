"""What is asked of the statistics: each figure, what is known to be reached elsewhere, and the bar."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

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
    Bar("simulated fleet, strict F1", "strict_f1", "0.51 - 0.74", low=0.78, digits=3),
    Bar("  changes with z >= 5, F1", "detectable_f1", "0.71 - 0.80", low=0.84, digits=3),
    Bar("false alarms / 1000, real, no change", "null_real", "0.16 - 12", high=0.5),
    Bar("false alarms / 1000, simulated, no change", "null_sim", "0.45 - 40", high=1.0),
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
    Bar("2000 cells of 7 x 3, ms", "ms_cells", "600 - 98000", high=100, digits=0),
    Bar("5000 timelines of 500 points, peak MB", "memory_mb", "", high=300, digits=0),
)

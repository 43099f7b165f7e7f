"""The statistics of Tidemark: numpy and scipy only, so that they can be measured and used without the service."""

from server.stats.cells import Arm, Cell, CellComparison, Flag, NoVerdict, StatisticalVerdict
from server.stats.comparison.verdicts import compare, foreseen
from server.stats.levels import benjamini_hochberg, judge_family

__all__ = [
    "Arm",
    "Cell",
    "CellComparison",
    "Flag",
    "NoVerdict",
    "StatisticalVerdict",
    "benjamini_hochberg",
    "compare",
    "foreseen",
    "judge_family",
]

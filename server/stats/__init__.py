"""The statistics of Tidemark: numpy and scipy only, so that they can be measured and used without the service."""

from server.stats.cells import Arm, Cell, Comparison, Flag, Verdict
from server.stats.comparison import compare
from server.stats.families import benjamini_hochberg, judge_family

__all__ = ["Arm", "Cell", "Comparison", "Flag", "Verdict", "benjamini_hochberg", "compare", "judge_family"]

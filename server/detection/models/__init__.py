"""What it means: comparisons, findings with their life, timelines with their change points, bisections, noise,
and whether all of it still follows from the measurements.
"""

from server.detection.models.finding import (
    Acceptance,
    Bisection,
    BisectionState,
    BisectionStep,
    Comparison,
    Finding,
    FindingState,
    FindingTrial,
    FindingVerdict,
    Verdict,
)
from server.detection.models.recomputation import Recomputation, RecomputationChunk
from server.detection.models.timeline import (
    ChangePoint,
    FleetState,
    MachineQuestion,
    MeasuredHead,
    NoiseProfile,
    Timeline,
    TimelinePoint,
)

__all__ = [
    "Acceptance",
    "Bisection",
    "BisectionState",
    "BisectionStep",
    "ChangePoint",
    "Comparison",
    "Finding",
    "FindingState",
    "FindingTrial",
    "FindingVerdict",
    "FleetState",
    "MachineQuestion",
    "MeasuredHead",
    "NoiseProfile",
    "Recomputation",
    "RecomputationChunk",
    "Timeline",
    "TimelinePoint",
    "Verdict",
]

"""What it means: comparisons, findings with their life, timelines with their change points, bisections, noise."""

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
    "Timeline",
    "TimelinePoint",
    "Verdict",
]

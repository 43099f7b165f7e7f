"""What it means: comparisons, findings with their life, timelines with their change points, bisections, noise."""

from server.detection.models.bisections import Bisection, BisectionState, BisectionStep
from server.detection.models.comparisons import Comparison, Verdict
from server.detection.models.findings import Acceptance, Finding, FindingState, FindingVerdict
from server.detection.models.machines import MachineQuestion, NoiseProfile
from server.detection.models.timelines import ChangePoint, FleetState, MeasuredHead, Timeline, TimelinePoint

__all__ = [
    "Acceptance",
    "Bisection",
    "BisectionState",
    "BisectionStep",
    "ChangePoint",
    "Comparison",
    "Finding",
    "FindingState",
    "FindingVerdict",
    "FleetState",
    "MachineQuestion",
    "MeasuredHead",
    "NoiseProfile",
    "Timeline",
    "TimelinePoint",
    "Verdict",
]

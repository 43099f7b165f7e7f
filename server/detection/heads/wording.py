"""What is said of a change that is only suspected."""

import math
from collections.abc import Sequence

from server.detection.headline import as_ratio
from server.detection.models import ChangePoint, Finding
from server.detection.vector import shorten
from server.results.models import Metric


def is_worse(point: ChangePoint) -> bool:
    return (point.effect > 0) != (point.timeline.metric.better == Metric.Better.HIGHER)


def suspected_kind(points: Sequence[ChangePoint]) -> Finding.Kind:
    """What it will be if fresh boots show what the timelines show."""
    worse = {is_worse(point) for point in points}
    if len(worse) > 1:
        return Finding.Kind.SPLIT
    return Finding.Kind.REGRESSED if worse == {True} else Finding.Kind.IMPROVED


def suspected_headline(points: Sequence[ChangePoint]) -> str:
    """For example: `Suspected: 1.05x time of fault-4k on haswell; to be confirmed by fresh boots.`"""
    largest: dict[tuple[str, str], ChangePoint] = {}
    for point in sorted(points, key=lambda one: -abs(one.effect)):
        largest.setdefault((point.timeline.machine.uarch.name, _cell(point)), point)
    told = [f"{as_ratio(math.exp(point.effect))} {cell} on {uarch}" for (uarch, cell), point in largest.items()]
    return f"Suspected: {shorten(told)}; to be confirmed by fresh boots."


def _cell(point: ChangePoint) -> str:
    return f"{point.timeline.metric.name} of {point.timeline.case.name}"

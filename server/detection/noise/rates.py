"""Measured error rates: how often equal kernels were called different."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import QuerySet, Sum

from server.detection.models import NoiseProfile
from server.lab.models import Machine

# Of the standard normal distribution, for intervals that hold 95 %.
_Z = 1.96


@dataclass(frozen=True)
class AlarmRate:
    """False alarms among A/A comparisons; `low` to `high` is the 95 % interval of their rate, null without any.

    `machine` and `uarch` are empty for all physical machines together.
    """

    machine: str
    uarch: str
    virtual: bool
    comparisons: int
    false_alarms: int
    rejections: int
    rate: float | None = None
    low: float | None = None
    high: float | None = None


def alarm_rate(machine: Machine | None = None) -> AlarmRate:
    """Of one machine, or of all physical ones of the site: what virtual ones show is no evidence. One query."""
    if machine is None:
        return _summed(NoiseProfile.objects.filter(machine__virtual=False), "", "", virtual=False)
    rows = NoiseProfile.objects.filter(machine=machine)
    return _summed(rows, machine.name, machine.uarch.name, virtual=machine.virtual)


def alarm_rates() -> tuple[AlarmRate, ...]:
    """Of every machine that has a noise profile, by name. One query."""
    rows = NoiseProfile.objects.order_by("machine__name")
    named = rows.values_list("machine__name", "machine__uarch__name", "machine__virtual")
    counted = named.annotate(n=Sum("comparisons"), alarms=Sum("false_alarms"), p=Sum("rejections"))
    return tuple(_rate(name, uarch, counts, virtual=virtual) for name, uarch, virtual, *counts in counted)


def _summed(rows: "QuerySet[NoiseProfile]", name: str, uarch: str, *, virtual: bool) -> AlarmRate:
    total = rows.order_by().aggregate(n=Sum("comparisons"), alarms=Sum("false_alarms"), p=Sum("rejections"))
    return _rate(name, uarch, [total["n"] or 0, total["alarms"] or 0, total["p"] or 0], virtual=virtual)


def wilson(found: int, number: int) -> tuple[float, float]:
    """The 95 % interval of a rate (Wilson, J. Am. Stat. Assoc. 22, 1927): sound for rates near 0, and for few."""
    rate, square = found / number, _Z * _Z / number
    centre = (rate + square / 2) / (1 + square)
    half = _Z / (1 + square) * math.sqrt(rate * (1 - rate) / number + square / (4 * number))
    # At both ends rounding would leave a little more than nothing, or less than all.
    return (0.0 if not found else centre - half), (1.0 if found == number else centre + half)


def _rate(name: str, uarch: str, counts: Sequence[int], *, virtual: bool) -> AlarmRate:
    comparisons, false_alarms, rejections = counts
    if not comparisons:
        return AlarmRate(name, uarch, virtual, 0, 0, 0)
    low, high = wilson(false_alarms, comparisons)
    rate = false_alarms / comparisons
    return AlarmRate(name, uarch, virtual, comparisons, false_alarms, rejections, rate, low, high)

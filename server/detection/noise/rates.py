"""Measured error rates: how often equal kernels were called different."""

import math
from dataclasses import dataclass

from django.db.models import Sum

from server.detection.models import NoiseProfile
from server.lab.models import Machine

# Of the standard normal distribution, for intervals that hold 95 %.
_Z = 1.96


@dataclass(frozen=True)
class AlarmRate:
    """False alarms among A/A comparisons; `low` to `high` is the 95 % interval of their rate, null without any."""

    machine: str
    comparisons: int
    false_alarms: int
    rejections: int
    rate: float | None = None
    low: float | None = None
    high: float | None = None


def alarm_rate(machine: Machine | None = None) -> AlarmRate:
    """Of one machine, or of the whole site (named ""). One query."""
    rows = NoiseProfile.objects.all() if machine is None else NoiseProfile.objects.filter(machine=machine)
    total = rows.order_by().aggregate(n=Sum("comparisons"), alarms=Sum("false_alarms"), p=Sum("rejections"))
    return _rate("" if machine is None else machine.name, total["n"] or 0, total["alarms"] or 0, total["p"] or 0)


def alarm_rates() -> tuple[AlarmRate, ...]:
    """Of every machine that has a noise profile, by name. One query."""
    sums = (Sum("comparisons"), Sum("false_alarms"), Sum("rejections"))
    rows = NoiseProfile.objects.order_by("machine__name").values_list("machine__name")
    return tuple(_rate(*row) for row in rows.annotate(n=sums[0], alarms=sums[1], p=sums[2]))


def wilson(found: int, number: int) -> tuple[float, float]:
    """The 95 % interval of a rate (Wilson, J. Am. Stat. Assoc. 22, 1927): sound for rates near 0, and for few."""
    rate, square = found / number, _Z * _Z / number
    centre = (rate + square / 2) / (1 + square)
    half = _Z / (1 + square) * math.sqrt(rate * (1 - rate) / number + square / (4 * number))
    # At both ends rounding would leave a little more than nothing, or less than all.
    return (0.0 if not found else centre - half), (1.0 if found == number else centre + half)


def _rate(machine: str, comparisons: int, false_alarms: int, rejections: int) -> AlarmRate:
    if not comparisons:
        return AlarmRate(machine, 0, 0, 0)
    low, high = wilson(false_alarms, comparisons)
    return AlarmRate(machine, comparisons, false_alarms, rejections, false_alarms / comparisons, low, high)

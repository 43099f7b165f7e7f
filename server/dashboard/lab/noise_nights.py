"""A machine's noise as a picture: what it showed between equal kernels, night by night."""

import math
from collections import defaultdict
from datetime import date, timedelta

from server.core import clock
from server.core.reasons import Because
from server.dashboard.pictures.small import Night, NoiseCourse
from server.detection.models import Verdict
from server.detection.trials.effects import equal_comparisons
from server.lab.models import Machine

_LATELY = timedelta(days=60)
_MOST_NIGHTS = 30
# Of a machine with 400 cases a month of nights.
_MOST_ROWS = 15_000
_SHARE = 0.95
_CHANGES = frozenset({Verdict.REGRESSED, Verdict.IMPROVED})


def noise_course(machine: Machine) -> NoiseCourse:
    """One query. A false alarm is what the noise profile counts as one."""
    rows = equal_comparisons([machine.pk], since=clock.now() - _LATELY).order_by("-computed_at")
    nights: dict[date, list[tuple[float, bool]]] = defaultdict(list)
    for at, ratio, verdict, code in rows.values_list("computed_at", "ratio", "verdict", "reason_code")[:_MOST_ROWS]:
        if ratio is not None and ratio > 0:
            alarmed = verdict in _CHANGES or code == Because.SAME_IMAGE
            nights[at.date()].append((abs(math.log(ratio)), alarmed))
    last = sorted(nights)[-_MOST_NIGHTS:]
    return NoiseCourse(tuple(_night(day, nights[day]) for day in last))


def _night(day: date, cells: list[tuple[float, bool]]) -> Night:
    sizes = sorted(size for size, _ in cells)
    spread = math.expm1(sizes[min(math.ceil(_SHARE * len(sizes)), len(sizes)) - 1])
    return Night(day, spread, sum(alarmed for _, alarmed in cells), len(cells))

"""The noise profile of each cell of a machine, made anew from the comparisons of equal kernels."""

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

from django.db import transaction

from server.core import clock
from server.core.locks import wait_for_lock
from server.detection.doubting import SAME_IMAGE
from server.detection.models import Comparison, NoiseProfile, Verdict
from server.detection.noise.cell_key import CellKey
from server.detection.noise.drifts import Drift, drifts_of
from server.detection.noise.history import REMEMBERED, Change, equal_comparisons, log_ratio, planned_since, recent
from server.detection.noise.quantiles import change_95
from server.lab.models import Machine

ALPHA = 0.05
_CHANGES = (Verdict.REGRESSED, Verdict.IMPROVED)
# `recent` leaves out what was judged at its own time.
_JUST_AFTER = timedelta(microseconds=1)


@dataclass(frozen=True)
class Profile:
    """The fields of a NoiseProfile that follow from comparisons; `mde`, `change_95` are fractions.

    They are those of the year that ended with the last one, and the first three count all of them. The noise is that of
    the machine as it is: nights of a drift do not count.
    """

    comparisons: int
    false_alarms: int
    rejections: int
    change_95: float
    boot_sd: float | None
    mde: float | None
    changes: list[float]
    last_at: datetime


def refresh_profiles(machine: Machine) -> int:
    """Bring the profiles of the machine's cells up to its comparisons; returns how many cells have one.

    All of them are made anew from rows, so that nothing is counted twice and nothing is missed. The profile of a cell
    that was not measured for a year stays as it was.
    """
    with transaction.atomic():
        # Two at once: the second reads what the first could not see yet.
        wait_for_lock(f"noise:{machine.pk}")
        rows = [
            NoiseProfile(machine=machine, case_id=case, metric_id=metric, core_type_id=core_type, **asdict(profile))
            for (case, metric, core_type), profile in fresh_profiles(machine).items()
        ]
        NoiseProfile.objects.bulk_create(
            rows,
            update_conflicts=True,
            unique_fields=["machine", "case", "metric", "core_type"],
            update_fields=list(Profile.__dataclass_fields__),
        )
    return len(rows)


def fresh_profiles(machine: Machine, until: Mapping[CellKey, datetime] | None = None) -> dict[CellKey, Profile]:
    """What the stored comparisons say about each cell: now, or as of the moments in `until`. A few queries."""
    cells: dict[CellKey, list[Comparison]] = defaultdict(list)
    moments = {} if until is None else until
    now = clock.now()
    rows = equal_comparisons([machine.pk], since=planned_since(min(moments.values(), default=now)))
    for row in rows.select_related("session"):
        key = (row.case_id, row.metric_id, row.core_type_id)
        if key not in moments or row.computed_at <= moments[key]:
            cells[key].append(row)
    drifts = drifts_of([machine.pk])
    # Of a cell that was not measured for so long, some of its last year may not be among the rows.
    whole = (key for key in cells if key in moments or cells[key][-1].session.created_at >= now - REMEMBERED)
    return {key: _profile(_last_year(cells[key]), drifts) for key in whole}


def _last_year(rows: Sequence[Comparison]) -> list[Comparison]:
    """Before the last of them, and itself."""
    since = rows[-1].computed_at - REMEMBERED
    return [row for row in rows if row.computed_at >= since]


def is_false_alarm(row: Comparison) -> bool:
    """Whether a comparison of equal kernels claimed a change, or would have if the kernels were not known to be one."""
    return row.verdict in _CHANGES or row.reason.startswith(SAME_IMAGE)


def _profile(rows: Sequence[Comparison], drifts: Sequence[Drift]) -> Profile:
    last = rows[-1].computed_at
    usual = [row for row in rows if not any(drift.holds(row.computed_at) for drift in drifts)]
    changes = recent([Change(log_ratio(row.ratio), row.computed_at) for row in usual], before=last + _JUST_AFTER)
    seen = [row.mde for row in usual if row.mde is not None]
    return Profile(
        comparisons=len(rows),
        false_alarms=sum(is_false_alarm(row) for row in rows),
        rejections=sum(row.p_value is not None and row.p_value <= ALPHA for row in rows),
        change_95=change_95(changes),
        boot_sd=_boot_sd(usual),
        mde=statistics.median(seen) if seen else None,
        changes=changes,
        last_at=last,
    )


def _boot_sd(rows: Sequence[Comparison]) -> float | None:
    """Pooled over both arms of all comparisons; for small spreads sd / mean is the deviation of logarithms."""
    arms = [(row.base_mean, row.base_sd) for row in rows] + [(row.patched_mean, row.patched_sd) for row in rows]
    squares = [(sd / mean) ** 2 for mean, sd in arms if mean and sd is not None]
    return math.sqrt(statistics.fmean(squares)) if squares else None

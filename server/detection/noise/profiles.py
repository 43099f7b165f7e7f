"""Noise profiles of machines' cells, made anew from comparisons of equal kernels; false alarms; what pages and the
API show of both.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Count, QuerySet, Sum, Window

from server import stats
from server.core import clock
from server.core.database import wait_for_lock
from server.core.reasons import Because
from server.core.rows.together import Row
from server.detection.models import Comparison, MachineQuestion, NoiseProfile, Verdict
from server.detection.trials.effects import (
    FEWEST_CHANGES,
    REMEMBERED,
    CellKey,
    Change,
    Drift,
    change_95,
    drifts_of,
    effect_of,
    equal_comparisons,
    log_ratio,
    planned_since,
    recent,
)
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
    return row.verdict in _CHANGES or row.reason_code == Because.SAME_IMAGE


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
        return _rate("", "", _counts(NoiseProfile.objects.filter(machine__virtual=False)), virtual=False)
    return rate_of(machine, _counts(NoiseProfile.objects.filter(machine=machine)))


def rate_of(machine: Machine, counts: Sequence[int]) -> AlarmRate:
    """Of a machine whose comparisons, false alarms and rejections were counted already."""
    return _rate(machine.name, machine.uarch.name, counts, virtual=machine.virtual)


def alarm_rates() -> tuple[AlarmRate, ...]:
    """Of every machine that has a noise profile, by name. One query."""
    rows = NoiseProfile.objects.order_by("machine__name")
    named = rows.values_list("machine__name", "machine__uarch__name", "machine__virtual")
    counted = named.annotate(n=Sum("comparisons"), alarms=Sum("false_alarms"), p=Sum("rejections"))
    return tuple(_rate(name, uarch, counts, virtual=virtual) for name, uarch, virtual, *counts in counted)


def _counts(rows: "QuerySet[NoiseProfile]") -> list[int]:
    total = rows.order_by().aggregate(n=Sum("comparisons"), alarms=Sum("false_alarms"), p=Sum("rejections"))
    return [total["n"] or 0, total["alarms"] or 0, total["p"] or 0]


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


@dataclass(frozen=True)
class NoiseRow:
    """One cell's noise profile; changes, effects and MDE are fractions, `boot_sd` is on logarithms."""

    benchmark: str
    case: str
    metric: str
    core_type: str
    comparisons: int
    false_alarms: int
    rejections: int
    change_95: float
    boot_sd: float | None
    mde: float | None
    min_effect: float
    last_at: datetime


@dataclass(frozen=True)
class QuestionRow:
    """A question about a machine; `reason` is the answer once it has one, `at` when it came into its state."""

    id: int
    machine: str
    kind: str
    state: str
    state_label: str
    detail: str
    reason: str
    at: datetime
    finding_id: int | None


def noise_of_machine(machine: Machine, most: int | None = None) -> tuple[tuple[NoiseRow, ...], int]:
    """The machine's profiles by benchmark, case, metric and core type, and how many are left out. One query, or two.

    Where there are more than `most`, those are told that vary most.
    """
    order = ("case__benchmark__name", "case__name", "metric__name", "core_type__name")
    every, unshown = noise_profiles(machine).order_by(*order), 0
    if most is not None:
        own = NoiseProfile.objects.filter(machine=machine).order_by("-change_95", "pk")
        first = list(own.values_list("pk", Window(Count("*")))[:most])
        every = every.filter(pk__in=[pk for pk, _ in first])
        unshown = first[0][1] - len(first) if first else 0
    return tuple(map(noise_row, every)), unshown


def noise_profiles(machine: Machine) -> "QuerySet[NoiseProfile]":
    """All of one machine, for who reads them page by page."""
    rows = NoiseProfile.objects.filter(machine=machine).select_related("case__benchmark", "metric", "core_type")
    names = ("case__name", "case__benchmark__name", "metric__name", "core_type__name")
    return rows.only(*(field.name for field in NoiseProfile._meta.concrete_fields), *names)


_ASKED = ("pk", "machine__name", "kind", "state", "detail", "reason", "state_since", "finding")


def questions_of(machine: Machine, limit: int = 50) -> "QuerySet[Any, Any]":
    """The machine's newest questions, open ones first, for `question_rows`."""
    return MachineQuestion.objects.filter(machine=machine).order_by("-state", "-id").values_list(*_ASKED)[:limit]


def open_questions(limit: int = 50) -> "QuerySet[Any, Any]":
    """The newest questions of all machines that nobody answered, for `question_rows`."""
    opened = MachineQuestion.objects.filter(state=MachineQuestion.State.OPEN)
    return opened.order_by("-id").values_list(*_ASKED)[:limit]


def question_rows(told: Iterable[Row]) -> tuple[QuestionRow, ...]:
    return tuple(
        QuestionRow(
            id=pk,
            machine=machine,
            kind=kind,
            state=state,
            state_label=MachineQuestion.State(state).label,
            detail=detail,
            reason="" if state == MachineQuestion.State.OPEN else reason,
            at=at,
            finding_id=finding,
        )
        for pk, machine, kind, state, detail, reason, at, finding in told
    )


def noise_row(row: NoiseProfile) -> NoiseRow:
    return NoiseRow(
        benchmark=row.case.benchmark.name,
        case=row.case.name,
        metric=row.metric.name,
        core_type=row.core_type.name,
        comparisons=row.comparisons,
        false_alarms=row.false_alarms,
        rejections=row.rejections,
        change_95=row.change_95,
        boot_sd=row.boot_sd,
        mde=row.mde,
        min_effect=effect_of(row.changes),
        last_at=row.last_at,
    )


@dataclass(frozen=True)
class ForeseenRow:
    """What so many boots a side would show of one cell, by its noise profile; fractions, `boot_sd` on logarithms.

    `mde` is null where the spread between boots is not known; `statement` says what is not known, empty where all is.
    """

    benchmark: str
    case: str
    metric: str
    core_type: str
    comparisons: int
    boot_sd: float | None
    min_effect: float
    mde: float | None
    statement: str
    last_at: datetime


NO_SPREAD = "How much boots of this cell differ is not known: no comparison of equal kernels told it."
FEW_CHANGES = (
    f"Fewer than {FEWEST_CHANGES} changes between equal kernels are known of this cell: its minimum effect may "
    "turn out larger than the least that every cell has."
)


def foreseen_row(row: NoiseProfile, boots: int) -> ForeseenRow:
    floor = effect_of(row.changes)
    known = row.boot_sd is not None
    few = len(row.changes) < FEWEST_CHANGES
    return ForeseenRow(
        benchmark=row.case.benchmark.name,
        case=row.case.name,
        metric=row.metric.name,
        core_type=row.core_type.name,
        comparisons=row.comparisons,
        boot_sd=row.boot_sd,
        min_effect=floor,
        mde=None if row.boot_sd is None else stats.foreseen(boot_sd=row.boot_sd, boots=boots, min_effect=floor),
        statement=(FEW_CHANGES if few else "") if known else NO_SPREAD,
        last_at=row.last_at,
    )

"""What pages, the API and `manage.py noise` show of machines' noise and of questions about them."""

from dataclasses import dataclass
from datetime import datetime

from django.db.models import QuerySet

from server.detection.models import MachineQuestion, NoiseProfile
from server.detection.noise.effects import effect_of
from server.detection.noise.rates import AlarmRate, alarm_rate, alarm_rates
from server.lab.models import Machine

__all__ = [
    "AlarmRate",
    "NoiseRow",
    "QuestionRow",
    "alarm_rate",
    "alarm_rates",
    "noise_of_machine",
    "noise_profiles",
    "noise_row",
    "open_questions",
    "questions_of",
]


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
    """The machine's profiles by benchmark, case, metric and core type, and how many are left out. One query, or three.

    Where there are more than `most`, those are told that vary most.
    """
    order = ("case__benchmark__name", "case__name", "metric__name", "core_type__name")
    every = noise_profiles(machine)
    rows = list(every.order_by(*order)[: None if most is None else most + 1])
    if most is None or len(rows) <= most:
        return tuple(map(noise_row, rows)), 0
    vary_most = list(every.order_by("-change_95", "pk").values_list("pk", flat=True)[:most])
    told = tuple(map(noise_row, every.filter(pk__in=vary_most).order_by(*order)))
    return told, every.count() - len(told)


def noise_profiles(machine: Machine) -> "QuerySet[NoiseProfile]":
    """All of one machine, for who reads them page by page."""
    return NoiseProfile.objects.filter(machine=machine).select_related("case__benchmark", "metric", "core_type")


def questions_of(machine: Machine, limit: int = 50) -> tuple[QuestionRow, ...]:
    """The machine's newest questions, open ones first. One query."""
    return _questions(MachineQuestion.objects.filter(machine=machine).order_by("-state", "-id"), limit)


def open_questions(limit: int = 50) -> tuple[QuestionRow, ...]:
    """The newest questions of all machines that nobody answered. One query."""
    return _questions(MachineQuestion.objects.filter(state=MachineQuestion.State.OPEN).order_by("-id"), limit)


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


def _questions(rows: "QuerySet[MachineQuestion]", limit: int) -> tuple[QuestionRow, ...]:
    return tuple(
        QuestionRow(
            id=row.pk,
            machine=row.machine.name,
            kind=row.kind,
            state=row.state,
            state_label=MachineQuestion.State(row.state).label,
            detail=row.detail,
            reason="" if row.state == MachineQuestion.State.OPEN else row.reason,
            at=row.state_since,
            finding_id=row.finding_id,
        )
        for row in rows.select_related("machine")[:limit]
    )

"""When machines drifted, from rows that never change: the question of each drift, and the history of health."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Min, QuerySet

from server.core.models import Transition
from server.detection.models import Comparison, MachineQuestion
from server.lab.hosts import Health
from server.lab.models import Trial


@dataclass(frozen=True)
class Drift:
    """One drift of a machine. Its nights are what was judged from `began` on, and before `over` (null: it goes on).

    `trial` is the second of the two trials that showed it, judged at `known`. `as_before` says that the service found
    the machine to be again as it was; else a person released it, who may have made another machine of it.
    """

    machine: int
    trial: int
    began: datetime
    known: datetime
    over: datetime | None
    as_before: bool = False

    def holds(self, at: datetime) -> bool:
        """Whether what was judged then shows the drift, and not the machine."""
        return self.began <= at and (self.over is None or at < self.over)


def drift_key(machine: int, trial: int) -> str:
    """Of the question that a drift is: one for each machine and trial."""
    return f"drift:{machine}:{trial}"


def noise_trials(machine: int) -> QuerySet[Trial]:
    """The A/A trials that were measured on a machine."""
    return Trial.objects.filter(purpose=Trial.Purpose.NOISE, state=Trial.State.DONE, sessions__machine=machine)


def drifts_of(machines: Collection[int]) -> list[Drift]:
    """All drifts of these machines, oldest first. One query, and three more for each drift: there are few."""
    asked = MachineQuestion.objects.filter(kind=MachineQuestion.Kind.DRIFT, machine__in=machines)
    return [_drift(question) for question in asked.order_by("pk")]


def _drift(question: MachineQuestion) -> Drift:
    machine, trial = question.machine_id, int(question.key.rpartition(":")[2])
    began, known = _began(machine, trial) or question.created_at, question.created_at
    lines = Transition.objects.filter(subject="machine-health", subject_id=machine)
    quarantined = lines.filter(after=Health.QUARANTINED, reason=question.detail, at__gte=known).order_by("id").first()
    if quarantined is None:
        # It was out of service already, or in somebody's hands: a person who puts it back knows it as it is now.
        return Drift(machine, trial, began, known, over=known)
    left = lines.filter(before=Health.QUARANTINED, id__gt=quarantined.pk).exclude(after=Health.QUARANTINED)
    end = left.order_by("id").first()
    if end is None:
        return Drift(machine, trial, began, known, over=None)
    confirmed = lines.filter(id__gte=quarantined.pk, id__lte=end.pk).exclude(actor="")
    return Drift(machine, trial, began, known, over=end.at, as_before=not confirmed.exists())


def _began(machine: int, trial: int) -> datetime | None:
    """When the first of the two trials was judged."""
    before = noise_trials(machine).filter(pk__lt=trial).order_by("-pk").values_list("pk", flat=True).first()
    rows = Comparison.objects.filter(session__machine=machine, session__trial__in=[before or trial, trial])
    found: datetime | None = rows.aggregate(at=Min("computed_at"))["at"]
    return found

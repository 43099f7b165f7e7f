"""What machines show by themselves: the noise of each of their cells, and questions about them."""

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from server.core.states import Stateful, state_check
from server.detection.models.findings import Finding
from server.lab.models import CoreType, Machine
from server.results.models import Case, Metric
from server.sources.models import Branch


class NoiseProfile(models.Model):
    """What a cell shows between equal kernels: the A/A changes of one (machine, case, metric, core type)."""

    machine = models.ForeignKey(Machine, on_delete=models.CASCADE, related_name="noise_profiles")
    case = models.ForeignKey(Case, on_delete=models.PROTECT, related_name="+")
    metric = models.ForeignKey(Metric, on_delete=models.PROTECT, related_name="+")
    core_type = models.ForeignKey(CoreType, on_delete=models.PROTECT, related_name="+")
    comparisons = models.PositiveIntegerField(help_text="Of equal kernels.")
    false_alarms = models.PositiveIntegerField(help_text="Of these, those that claimed a change.")
    rejections = models.PositiveIntegerField(help_text="Of these, those whose p-value was at most 0.05.")
    change_95 = models.FloatField(help_text="95th percentile of their changes, as a fraction.")
    boot_sd = models.FloatField(null=True, help_text="Standard deviation between boots, on logarithms.")
    mde = models.FloatField(null=True, help_text="Median of what would have been seen, as a fraction.")
    changes = ArrayField(models.FloatField(), help_text="Logarithms of the ratios, oldest first; the last of them.")
    last_at = models.DateTimeField(help_text="Of the last comparison.")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["machine", "case", "metric", "core_type"], name="noise_profile_once")
        ]
        ordering = ["machine", "case", "metric"]

    def __str__(self) -> str:
        return f"noise of {self.metric} of {self.case} on {self.core_type}"


class QuestionState(models.TextChoices):
    OPEN = "open", "to be looked at"
    ANSWERED = "answered", "answered"


class MachineQuestion(Stateful):
    """Something that is the machine's and not the code's, for a person to look at. Never a finding."""

    State = QuestionState

    class Kind(models.TextChoices):
        DISAGREEMENT = "disagreement", "two machines of one microarchitecture disagree"
        EVENT = "event", "most of its timelines moved at once"
        DRIFT = "drift", "equal kernels differ more than they used to"
        BASE = "base", "a known kernel measures otherwise than before"

    NEXT: ClassVar = {
        QuestionState.OPEN: frozenset({QuestionState.ANSWERED}),
        QuestionState.ANSWERED: frozenset({QuestionState.OPEN}),
    }

    key = models.CharField(max_length=200, unique=True, help_text="What is asked: asking twice makes one question.")
    kind = models.CharField(max_length=12, choices=Kind.choices)
    machine = models.ForeignKey(Machine, on_delete=models.PROTECT, related_name="questions")
    detail = models.TextField(help_text="What was seen, for people.")
    finding = models.ForeignKey(Finding, null=True, blank=True, on_delete=models.SET_NULL, related_name="questions")
    branch = models.ForeignKey(Branch, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    place = models.PositiveIntegerField(null=True, blank=True, help_text="Of the branch, for an event.")

    class Meta:
        constraints = [
            state_check(QuestionState, "machine_question_state_known"),
            models.CheckConstraint(
                condition=Q(kind__in=["disagreement", "event", "drift", "base"]), name="machine_question_kind_known"
            ),
        ]
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.kind}: {self.machine.name}"

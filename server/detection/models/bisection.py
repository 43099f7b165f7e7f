"""From suspicion to culprit: which of the revisions between two measured ones made a change."""

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from server.core.states import Stateful, state_check
from server.detection.models.finding import Comparison, Finding
from server.lab.models import Machine, Trial
from server.sources.models import Revision

FIRST_ROUND = 1


class BisectionState(models.TextChoices):
    ENDS = "ends", "both ends are being verified"
    SEARCHING = "searching", "the revisions between are being measured"
    CHECKING = "checking", "the culprit and its revert are being measured"
    FOUND = "found", "found"
    GAVE_UP = "gave-up", "cannot be told"
    CANCELED = "canceled", "no longer wanted"


class Bisection(Stateful):
    """The search for the culprit of a finding on one machine, by one cell that moved there.

    Bisections of one finding share their builds: they ask for the same revisions while their intervals are equal.
    """

    State = BisectionState

    NEXT: ClassVar = {
        BisectionState.ENDS: frozenset({BisectionState.SEARCHING, BisectionState.GAVE_UP, BisectionState.CANCELED}),
        # Found without a check: one of several that cannot be told apart.
        BisectionState.SEARCHING: frozenset(
            {BisectionState.CHECKING, BisectionState.FOUND, BisectionState.GAVE_UP, BisectionState.CANCELED}
        ),
        BisectionState.CHECKING: frozenset({BisectionState.FOUND, BisectionState.GAVE_UP, BisectionState.CANCELED}),
        # Asked for once more: another round. What was found stays found.
        BisectionState.GAVE_UP: frozenset({BisectionState.ENDS}),
        # What nobody asked for any more may have nothing to look for when somebody would again.
        BisectionState.CANCELED: frozenset({BisectionState.ENDS, BisectionState.GAVE_UP}),
    }
    FINAL: ClassVar = frozenset({BisectionState.FOUND, BisectionState.GAVE_UP, BisectionState.CANCELED})

    finding = models.ForeignKey(Finding, on_delete=models.PROTECT, related_name="bisections")
    machine = models.ForeignKey(Machine, on_delete=models.PROTECT, related_name="bisections")
    target = models.ForeignKey(
        Comparison, on_delete=models.PROTECT, related_name="+", help_text="The cell whose change is looked for."
    )
    revisions = ArrayField(
        models.CharField(max_length=40), help_text="Commits in their order, the good end first, the bad end last."
    )
    low = models.PositiveIntegerField(default=0, help_text="Index of the last revision known to be good.")
    high = models.PositiveIntegerField(help_text="Index of the first revision known to be bad.")
    round = models.PositiveIntegerField(default=FIRST_ROUND, help_text="Counted up when it is searched once more.")
    effect = models.FloatField(help_text="Logarithm of bad / good, as it was measured at the ends.")
    culprit = models.ForeignKey(
        Revision, null=True, blank=True, on_delete=models.PROTECT, related_name="bisections_of_it"
    )

    class Meta:
        constraints = [
            state_check(BisectionState, "bisection_state_known"),
            models.UniqueConstraint(fields=["finding", "machine"], name="bisection_once"),
            models.CheckConstraint(condition=Q(low__lt=models.F("high")), name="bisection_has_interval"),
        ]
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"bisection {self.pk} of finding {self.finding_id} on {self.machine.name}"

    def current_steps(self) -> "models.QuerySet[BisectionStep]":
        """Those of its last round: what earlier ones told, tried and spent counts no more."""
        return BisectionStep.objects.filter(bisection=self.pk, round=self.round)


class BisectionStep(models.Model):
    """One revision that was asked for, and what it said."""

    class Kind(models.TextChoices):
        ENDS = "ends", "both ends"
        MIDDLE = "middle", "a revision between"
        CULPRIT = "culprit", "the culprit against its parent"
        REVERT = "revert", "the bad end without the culprit"

    class Answer(models.TextChoices):
        GOOD = "good", "without the change"
        BAD = "bad", "with the change"
        SKIPPED = "skipped", "does not build or boot"
        UNSURE = "unsure", "cannot be told"

    bisection = models.ForeignKey(Bisection, on_delete=models.CASCADE, related_name="steps")
    # Over all rounds: trials are named by it.
    number = models.PositiveIntegerField()
    round = models.PositiveIntegerField(default=FIRST_ROUND)
    kind = models.CharField(max_length=8, choices=Kind.choices)
    index = models.PositiveIntegerField(null=True, blank=True, help_text="Of `revisions`; empty for the revert.")
    trial = models.ForeignKey(Trial, null=True, blank=True, on_delete=models.PROTECT, related_name="bisection_steps")
    answer = models.CharField(max_length=8, choices=Answer.choices, blank=True, help_text="Empty: being measured.")
    ratio = models.FloatField(null=True, blank=True, help_text="This revision / good end, in the target's metric.")
    reason = models.TextField(blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["bisection", "number"], name="bisection_step_once"),
            models.CheckConstraint(
                condition=Q(kind__in=["ends", "middle", "culprit", "revert"]), name="bisection_step_kind_known"
            ),
            models.CheckConstraint(
                condition=Q(answer__in=["", "good", "bad", "skipped", "unsure"]), name="bisection_step_answer_known"
            ),
        ]
        ordering = ["bisection", "number"]

    def __str__(self) -> str:
        return f"step {self.number} of bisection {self.bisection_id}"

"""Trials: two revisions that are compared on some machines, to answer one question."""

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from server.core.states import Stateful, state_check
from server.lab.models.hosts import Machine
from server.sources.models import Revision, Series
from server.sources.models.trees import words


class TrialState(models.TextChoices):
    WANTED = "wanted", "waiting for its kernels"
    MEASURING = "measuring", "on its machines"
    DONE = "done", "measured"
    FAILED = "failed", "cannot be measured"
    CANCELED = "canceled", "no longer wanted"


class Trial(Stateful):
    """Base against patched revision on some machines: one session on each, judged together as one family of cells.

    `key` is made from the question, so that asking it twice makes one trial.
    """

    State = TrialState

    NEXT: ClassVar = {
        TrialState.WANTED: frozenset({TrialState.MEASURING, TrialState.DONE, TrialState.FAILED, TrialState.CANCELED}),
        TrialState.MEASURING: frozenset({TrialState.DONE, TrialState.FAILED, TrialState.CANCELED}),
        # A kernel that failed falsely was asked for again.
        TrialState.FAILED: frozenset({TrialState.MEASURING}),
    }
    FINAL: ClassVar = frozenset({TrialState.DONE, TrialState.FAILED, TrialState.CANCELED})

    class Purpose(models.TextChoices):
        SERIES = "series", "what a series costs"
        PATCH = "patch", "what one patch of a series adds"
        LAYOUT = "layout", "whether an effect is only how code is placed"
        HEAD = "head", "a tree's head against its reference kernel"
        CONFIRM = "confirm", "whether a suspected change is there"
        BISECT = "bisect", "which revision made a change"
        REVERT = "revert", "whether taking a revision back takes its change back"
        FIX = "fix", "whether a change is mended"
        NOISE = "noise", "what a machine shows between equal kernels"

    key = models.CharField(max_length=120, unique=True, help_text="The question: series:12, head:3:45 ...")
    purpose = models.CharField(max_length=10, choices=Purpose.choices)
    series = models.ForeignKey(Series, null=True, blank=True, on_delete=models.PROTECT, related_name="trials")
    base = models.ForeignKey(Revision, on_delete=models.PROTECT, related_name="trials_as_base")
    patched = models.ForeignKey(Revision, on_delete=models.PROTECT, related_name="trials_as_patched")
    layout = models.BooleanField(default=False, help_text="With the other code layout of each machine's configuration.")
    machines = models.ManyToManyField(
        Machine, blank=True, related_name="trials", help_text="Where; empty: all that the tree is interested in."
    )
    benchmarks = words(100, "What is measured, as in sessions.")
    looks = ArrayField(
        models.PositiveIntegerField(), help_text="Boots a side at which it is judged; the last is the most."
    )
    budget_seconds = models.FloatField(null=True, blank=True, help_text="Machine time of all its sessions; no limit.")
    min_effect = models.FloatField(
        null=True,
        blank=True,
        help_text="Changes below this fraction count as none; empty: what each cell's noise says.",
    )
    answered_at = models.DateTimeField(
        null=True, blank=True, help_text="When its result was taken up by whoever asked."
    )
    priority = models.IntegerField(default=0, help_text="On top of its tree's; the higher, the sooner.")
    tried_at = models.DateTimeField(null=True, blank=True, help_text="When the sweep last tried to plan it.")

    class Meta:
        constraints = [
            state_check(TrialState, "trial_state_known"),
            models.CheckConstraint(
                condition=Q(
                    purpose__in=["series", "patch", "layout", "head", "confirm", "bisect", "revert", "fix", "noise"]
                ),
                name="trial_purpose_known",
            ),
            models.CheckConstraint(condition=Q(looks__len__gt=0), name="trial_has_looks"),
            models.UniqueConstraint(fields=["series"], condition=Q(purpose="series"), name="trial_of_series_once"),
        ]
        indexes = [
            # What the sweeps look for, a few among very many.
            models.Index(fields=["state"], condition=Q(state__in=["wanted", "measuring"]), name="trial_open"),
            models.Index(
                fields=["id"],
                condition=Q(answered_at=None, state__in=["done", "failed", "canceled"]),
                name="trial_unanswered",
            ),
            models.Index(fields=["purpose", "-id"], name="trial_of_purpose"),
            # Whether an idle machine had one lately.
            models.Index(fields=["created_at"], condition=Q(purpose="noise"), name="trial_of_night"),
        ]
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"trial {self.key}"

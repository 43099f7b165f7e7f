"""Branches and machines over time: ratios of heads to the pinned reference, steps that were published, noise of
cells, questions about machines.
"""

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from server.core import clock
from server.core.models import Transition
from server.core.states import Stateful, state_check
from server.detection.models.finding import Comparison, Finding
from server.lab.models import CoreType, Machine, Trial
from server.results.models import Case, Metric
from server.sources.models import Branch, Revision


class FleetState(models.Model):
    """What is remembered of all timelines of a branch together between two heads."""

    branch = models.ForeignKey(Branch, on_delete=models.CASCADE, related_name="fleets")
    reference = models.ForeignKey(Revision, on_delete=models.PROTECT, related_name="+")
    virtual = models.BooleanField(help_text="Virtual machines are never judged together with physical ones.")
    events = models.JSONField(
        default=list,
        blank=True,
        help_text="Machine and place of the events among the last points.",
    )
    observed = models.PositiveIntegerField(default=0, help_text="How many heads entered its timelines.")
    newest_place = models.PositiveIntegerField(null=True, blank=True, help_text="Of these; an earlier head is late.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["branch", "reference", "virtual"], name="fleet_state_once")]
        ordering = ["branch", "reference"]

    def __str__(self) -> str:
        return f"fleet of {self.branch}"


class MeasuredHead(models.Model):
    """A revision of a branch that is measured against the reference: where it stands, and whether it was looked at.

    `place` counts the first-parent commits up to it: it grows along the branch, and gaps are what was not measured.
    """

    branch = models.ForeignKey(Branch, on_delete=models.CASCADE, related_name="measured")
    revision = models.ForeignKey(Revision, on_delete=models.PROTECT, related_name="+")
    reference = models.ForeignKey(Revision, on_delete=models.PROTECT, related_name="+")
    place = models.PositiveIntegerField()
    trial = models.ForeignKey(Trial, on_delete=models.PROTECT, related_name="heads")
    observed_at = models.DateTimeField(null=True, blank=True, help_text="When its points entered the timelines.")
    fleet = models.ForeignKey(
        FleetState,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="heads",
        help_text="Whose timelines got its points; empty: it had none.",
    )
    observed_as = models.PositiveIntegerField(
        null=True, blank=True, help_text="How many heads of the fleet were there with it: late ones come after earlier."
    )
    created_at = models.DateTimeField(default=clock.now)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["branch", "reference", "revision"], name="measured_head_once")]
        indexes = [
            models.Index(fields=["branch", "reference", "-place"], name="measured_head_place"),
            models.Index(fields=["branch", "place"], condition=Q(observed_at=None), name="measured_head_waiting"),
            models.Index(fields=["fleet", "-place"], name="measured_head_of_fleet"),
        ]
        ordering = ["branch", "place"]

    def __str__(self) -> str:
        return f"{self.branch} at {self.place}"


class Timeline(models.Model):
    """The ratios head / reference of one (branch, machine, core type, case, metric)."""

    branch = models.ForeignKey(Branch, on_delete=models.CASCADE, related_name="timelines")
    reference = models.ForeignKey(Revision, on_delete=models.PROTECT, related_name="+")
    machine = models.ForeignKey(Machine, on_delete=models.PROTECT, related_name="timelines")
    case = models.ForeignKey(Case, on_delete=models.PROTECT, related_name="timelines")
    metric = models.ForeignKey(Metric, on_delete=models.PROTECT, related_name="timelines")
    core_type = models.ForeignKey(CoreType, on_delete=models.PROTECT, related_name="timelines")
    watch = models.JSONField(
        default=dict,
        blank=True,
        help_text="What is remembered between two points (server/stats/changepoints/watch.py).",
    )
    points_seen = models.PositiveIntegerField(default=0)
    last_place = models.PositiveIntegerField(default=0, help_text="Of the newest point.")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["branch", "reference", "machine", "case", "metric", "core_type"], name="timeline_once"
            )
        ]
        ordering = ["branch", "machine", "case", "metric"]

    def __str__(self) -> str:
        return f"{self.metric} of {self.case} on {self.core_type}"


class TimelinePoint(models.Model):
    """One point: the ratio of a head to the reference, with its interval, from one session."""

    timeline = models.ForeignKey(Timeline, on_delete=models.CASCADE, related_name="points")
    head = models.ForeignKey(MeasuredHead, on_delete=models.CASCADE, related_name="points")
    comparison = models.OneToOneField(Comparison, on_delete=models.CASCADE, related_name="point")
    place = models.PositiveIntegerField(help_text="Of the head.")
    ratio = models.FloatField(help_text="head / reference")
    ratio_low = models.FloatField(null=True, help_text="95 % interval")
    ratio_high = models.FloatField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["timeline", "place"], name="timeline_point_once")]
        ordering = ["timeline", "place"]

    def __str__(self) -> str:
        return f"{self.ratio:.3f} at {self.place}"


class ChangePoint(models.Model):
    """A step of a timeline that was published. It stays, or is withdrawn; it never comes twice."""

    class State(models.TextChoices):
        SUSPECT = "suspect", "suspected"
        SETTLED = "settled", "settled"
        WITHDRAWN = "withdrawn", "withdrawn"
        MACHINE = "machine", "an event of its machine"

    timeline = models.ForeignKey(Timeline, on_delete=models.CASCADE, related_name="change_points")
    first_place = models.PositiveIntegerField(help_text="Where it was first published: it is known by this.")
    place = models.PositiveIntegerField(help_text="First head of the new level.")
    before_place = models.PositiveIntegerField(help_text="Last head of the old level.")
    effect = models.FloatField(help_text="Logarithm of after / before.")
    score = models.FloatField(help_text="-log10 of the chance")
    state = models.CharField(max_length=10, choices=State.choices)
    finding = models.ForeignKey(Finding, null=True, blank=True, on_delete=models.SET_NULL, related_name="change_points")
    published_at = models.DateTimeField(default=clock.now)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["timeline", "first_place"], name="change_point_once"),
            models.CheckConstraint(
                condition=Q(state__in=["suspect", "settled", "withdrawn", "machine"]), name="change_point_state_known"
            ),
        ]
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.state} at {self.place} of {self.timeline}"


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
        indexes = [
            # Lists of machines tell the sums of each.
            models.Index(
                fields=["machine"],
                include=["comparisons", "false_alarms", "rejections", "last_at"],
                name="noise_sums",
            )
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
    trial = models.ForeignKey(
        Trial, null=True, blank=True, on_delete=models.CASCADE, related_name="+", help_text="That showed a drift."
    )
    # Lines of the history are kept in parts, of which none could vouch for a number alone.
    quarantine = models.ForeignKey(
        Transition,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        db_constraint=False,
        related_name="+",
        help_text="That it led to.",
    )

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

"""The canary: what the site file says of the series that the service posts to itself."""

from datetime import datetime, timedelta
from typing import ClassVar

from django.core.validators import MinValueValidator, RegexValidator
from django.db import models

from server.core import clock
from server.lab.models.host import Machine
from server.sources.models import Series, Tree
from server.sources.models.watched import words

# A comment of C can stand at their end, and the kernel stays the same.
_C_FILE = RegexValidator(
    r"\A(?!/)(?!.*(?:^|/)\.\.?(?:/|\Z))[\w./+-]{1,200}\.[ch]\Z", "a file of C in the tree: init/main.c"
)


# Its stages in their order, and how long each may take where the site says nothing.
_MINUTES = {"post": 60, "mails": 15, "apply": 30, "builds": 360, "sessions": 720, "verdict": 60, "report": 120}


def _minutes(stage: str, help_text: str) -> "models.PositiveIntegerField[int, int]":
    return models.PositiveIntegerField(default=_MINUTES[stage], validators=[MinValueValidator(1)], help_text=help_text)


class Canary(models.Model):
    """One row at most. Each stage of the way may take so many minutes, counted from the end of the one before."""

    MINUTES: ClassVar = _MINUTES

    only = models.BooleanField(default=True, unique=True, editable=False)
    enabled = models.BooleanField(default=True)
    tree = models.ForeignKey(Tree, on_delete=models.PROTECT, related_name="+", help_text="What it is posted against.")
    machine = models.ForeignKey(Machine, on_delete=models.PROTECT, related_name="+", help_text="Where it is measured.")
    file = models.CharField(max_length=200, validators=[_C_FILE], help_text="The file that gets a line of comment.")
    to = models.EmailField(help_text="The operator's own sink: its author, who is told the result.")
    operators = models.EmailField(blank=True, help_text="Who is told when it is overdue; empty: nobody by mail.")
    cases = words(100, "What is measured, as BENCHMARK or BENCHMARK/CASE; empty: all that the machine can.")
    every_hours = models.PositiveIntegerField(default=24, validators=[MinValueValidator(1)])
    post_minutes = _minutes("post", "From when one is due until it is posted.")
    mails_minutes = _minutes("mails", "Until its mails are a series whose sender is checked.")
    apply_minutes = _minutes("apply", "Until it is applied.")
    builds_minutes = _minutes("builds", "Until both kernels are built.")
    sessions_minutes = _minutes("sessions", "Until it is measured.")
    verdict_minutes = _minutes("verdict", "Until it is judged.")
    report_minutes = _minutes("report", "Until its report has left.")
    # How far the newest one has come, as the sweep has seen it; "post": the next one is waited for.
    series = models.ForeignKey(
        Series, null=True, blank=True, editable=False, on_delete=models.PROTECT, related_name="+"
    )
    message_id = models.CharField(max_length=200, blank=True, editable=False)
    posted_at = models.DateTimeField(null=True, blank=True, editable=False)
    stage = models.CharField(max_length=10, default="post", editable=False)
    stage_since = models.DateTimeField(default=clock.now, editable=False)
    detail = models.TextField(blank=True, editable=False, help_text="What is waited for, or what is wrong.")
    failing_since = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="When one was first found overdue and none has come through."
    )
    passed_at = models.DateTimeField(null=True, blank=True, editable=False, help_text="When the last one came through.")

    class Meta:
        verbose_name_plural = "canaries"
        constraints = [models.CheckConstraint(condition=models.Q(only=True), name="canary_is_one")]

    def __str__(self) -> str:
        return f"canary of {self.tree} on {self.machine}"

    @property
    def limit(self) -> timedelta:
        """How long its stage may take."""
        return timedelta(minutes=getattr(self, f"{self.stage}_minutes"))

    @property
    def every(self) -> timedelta:
        return timedelta(hours=self.every_hours)

    def age(self, now: datetime) -> timedelta:
        """For how long it is in its stage; zero while the next one is not due."""
        return max(now - self.stage_since, timedelta())

    def is_overdue(self, now: datetime) -> bool:
        """Told by the clock as well: the sweep that would find it may be what has failed."""
        return self.failing_since is not None or self.age(now) > self.limit

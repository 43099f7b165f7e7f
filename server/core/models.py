"""What every room shares: the history of states, and tokens for agents and scripts."""

from django.db import models

from server.core import clock
from server.core.reasons import code_field


class Transition(models.Model):
    """One step in the life of one row. Written in the transaction of the step, never changed."""

    trace = models.CharField(max_length=16, db_index=True)
    subject = models.CharField(max_length=30, help_text="Kind of row: series, build, session, boot ...")
    subject_id = models.BigIntegerField()
    before = models.CharField(max_length=20, blank=True)
    after = models.CharField(max_length=20)
    reason = models.TextField(blank=True)
    reason_code = code_field()
    actor = models.CharField(max_length=150, blank=True, default="", help_text="Who did it; empty: the service itself.")
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        indexes = [models.Index(fields=["subject", "subject_id", "id"], name="transition_subject")]
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.subject} {self.subject_id}: {self.before} -> {self.after}"


class ApiToken(models.Model):
    """A secret of one agent or script. Only its SHA-256 is stored; `prefix` finds the row."""

    class Scope(models.TextChoices):
        MACHINE = "machine", "claims and uploads for the machine named in `subject`"
        BUILDER = "builder", "claims and uploads builds for the builder named in `subject`"
        CONTROL = "control", "claims power cycles for the control host named in `subject`"

    name = models.CharField(max_length=100, db_index=True, help_text="The same for a token and those it is renewed by.")
    prefix = models.CharField(max_length=12, unique=True)
    digest = models.CharField(max_length=64)
    scope = models.CharField(max_length=10, choices=Scope.choices)
    subject = models.CharField(max_length=100, help_text="Machine or builder that holds it.")
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(default=clock.now)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=models.Q(scope__in=["machine", "builder", "control"]),
                name="token_scope_known",
            )
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix})"


class Begun(models.Model):
    """A task that has begun and has not come to an end: its worker is at it, or did not outlive it."""

    key = models.CharField(max_length=200, help_text="The task and its arguments.")
    at = models.DateTimeField(default=clock.now)
    given_up = models.BooleanField(default=False, help_text="It is one of those for which the task was given up.")

    class Meta:
        indexes = [models.Index(fields=["key", "at"], name="begun_of_task")]
        verbose_name_plural = "begun"

    def __str__(self) -> str:
        return f"{self.key}: {self.at}"


class Tries(models.Model):
    """How often something was tried that went wrong, by one address, browser or user, since a moment."""

    key = models.CharField(max_length=90, unique=True, help_text="What is tried, by whom.")
    count = models.PositiveIntegerField()
    since = models.DateTimeField(db_index=True)

    class Meta:
        verbose_name_plural = "tries"

    def __str__(self) -> str:
        return f"{self.key}: {self.count}"

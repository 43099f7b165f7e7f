"""What every room shares: the history of states, and tokens for agents and for scripts of people."""

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models

from server.core import clock
from server.core.reasons import code_field

# A login name, and the name of the token by which its owner did it.
LONGEST_ACTOR = 230


class Transition(models.Model):
    """One step in the life of one row. Written in the transaction of the step, never changed."""

    trace = models.CharField(max_length=16, db_index=True)
    subject = models.CharField(max_length=30, help_text="Kind of row: series, build, session, boot ...")
    subject_id = models.BigIntegerField()
    before = models.CharField(max_length=20, blank=True)
    after = models.CharField(max_length=20)
    reason = models.TextField(blank=True)
    reason_code = code_field()
    actor = models.CharField(
        max_length=LONGEST_ACTOR, blank=True, default="", help_text="Who did it; empty: the service itself."
    )
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        indexes = [models.Index(fields=["subject", "subject_id", "id"], name="transition_subject")]
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.subject} {self.subject_id}: {self.before} -> {self.after}"


class Credential(models.Model):
    """A secret of 256 random bits, of which the SHA-256 is stored alone; `prefix` finds the row."""

    prefix = models.CharField(max_length=12, unique=True)
    digest = models.CharField(max_length=64)
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(default=clock.now)

    class Meta:
        abstract = True


class ApiToken(Credential):
    """What one agent holds."""

    class Scope(models.TextChoices):
        MACHINE = "machine", "claims and uploads for the machine named in `subject`"
        BUILDER = "builder", "claims and uploads builds for the builder named in `subject`"
        CONTROL = "control", "claims power cycles for the control host named in `subject`"

    name = models.CharField(max_length=100, db_index=True, help_text="The same for a token and those it is renewed by.")
    scope = models.CharField(max_length=10, choices=Scope.choices)
    subject = models.CharField(max_length=100, help_text="Machine or builder that holds it.")

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=models.Q(scope__in=["machine", "builder", "control"]),
                name="token_scope_known",
            )
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix})"


class PersonToken(Credential):
    """What a script of a person holds: it may do what its scopes say, of what the person may do just then."""

    class Scope(models.TextChoices):
        SUBMIT = "submit", "hand in a series to be measured"
        APPROVE = "approve", "let a held series run"
        RETEST = "retest", "have a series measured again"
        TRIAGE = "triage", "withdraw, reopen and accept findings"
        MODERATE = "moderate", "release and reject reports"
        MAINTENANCE = "maintenance", "take machines out of service and put them back"
        BUILDS = "builds", "ask for a failed build again"
        SUBSCRIBE = "subscribe", "read and change what its owner is told of"
        ENROL = "enrol", "make codes by which machines come into the lab"

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="tokens")
    name = models.CharField(max_length=60, help_text="Shown to everybody beside what is done with it.")
    scopes = ArrayField(models.CharField(max_length=20, choices=Scope.choices), size=len(Scope))

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["user", "name"], condition=models.Q(revoked_at=None), name="person_token_named_once"
            ),
            models.CheckConstraint(condition=models.Q(scopes__len__gt=0), name="person_token_opens_something"),
            models.CheckConstraint(
                condition=models.Q(scopes__contained_by=[
                    "submit", "approve", "retest", "triage", "moderate", "maintenance", "builds", "subscribe",
                    "enrol",
                ]),
                name="person_token_scopes_known",
            ),
        ]  # fmt: skip

    def __str__(self) -> str:
        return f"{self.name} of {self.user} ({self.prefix})"


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

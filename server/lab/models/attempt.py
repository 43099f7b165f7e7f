"""Attempts to get work done somewhere, and when the dispatcher looked at them last."""

from typing import ClassVar

from django.db import models
from django.db.models import Count, F, OuterRef, Q, Subquery
from django.db.models.functions import Coalesce

from server.builds.models import Build
from server.core.states import Stateful, state_check
from server.lab.models.host import Builder, Machine
from server.lab.models.trial import PowerCycle, Session


class AttemptState(models.TextChoices):
    SUBMITTING = "submitting", "being handed to the dispatcher"
    QUEUED = "queued", "accepted, not claimed yet"
    RUNNING = "running", "claimed by an agent"
    CANCELING = "canceling", "being stopped"
    DONE = "done", "the agent reported its end"
    LOST = "lost", "ended without a report"
    CANCELED = "canceled", "canceled"


class Fault(models.TextChoices):
    """Whose fault it is that an attempt ended before its agent could claim it. It is never the work's."""

    HOST = "host", "something is wrong with the host, or with its agent's configuration"
    SERVICE = "service", "the service could not be reached from there"
    JOB = "job", "the job's script is not ours"
    UNKNOWN = "unknown", "its console could not be read"


# How the attempts of one host are asked for.
LATEST_FIRST = F("id").desc(nulls_last=True)
_ACTIVE = Q(state__in=["submitting", "queued", "running", "canceling"])


class Attempt(Stateful):
    """One try to get a build or a session done somewhere. Its key makes submitting it twice harmless."""

    State = AttemptState

    IDS: ClassVar = {"key": "key", "build": "build_id", "session": "session_id"}
    NEXT: ClassVar = {
        AttemptState.SUBMITTING: frozenset(
            {
                AttemptState.QUEUED,
                AttemptState.RUNNING,
                AttemptState.CANCELING,
                AttemptState.LOST,
                AttemptState.CANCELED,
            }
        ),
        AttemptState.QUEUED: frozenset(
            {AttemptState.RUNNING, AttemptState.CANCELING, AttemptState.LOST, AttemptState.CANCELED}
        ),
        AttemptState.RUNNING: frozenset(
            {AttemptState.DONE, AttemptState.CANCELING, AttemptState.LOST, AttemptState.CANCELED}
        ),
        # The agent may end by itself while it is being stopped.
        AttemptState.CANCELING: frozenset({AttemptState.DONE, AttemptState.LOST, AttemptState.CANCELED}),
    }
    ACTIVE: ClassVar = (
        AttemptState.SUBMITTING,
        AttemptState.QUEUED,
        AttemptState.RUNNING,
        AttemptState.CANCELING,
    )

    key = models.CharField(
        max_length=60, unique=True, help_text="build-ID-NUMBER, session-ID-NUMBER or power-cycle-ID-NUMBER"
    )
    number = models.PositiveIntegerField()
    build = models.ForeignKey(Build, null=True, blank=True, on_delete=models.CASCADE, related_name="attempts")
    session = models.ForeignKey(
        Session,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="attempts",
    )
    power_cycle = models.ForeignKey(
        PowerCycle, null=True, blank=True, on_delete=models.CASCADE, related_name="attempts"
    )
    builder = models.ForeignKey(
        Builder, null=True, blank=True, on_delete=models.PROTECT, related_name="attempts", help_text="Of a build."
    )
    machine = models.ForeignKey(
        Machine, null=True, blank=True, on_delete=models.PROTECT, related_name="attempts", help_text="Of a session."
    )
    adapter = models.CharField(max_length=20)
    slots = models.PositiveIntegerField(help_text="How much of the dispatcher's capacity it takes.")
    agent = models.CharField(
        max_length=64,
        blank=True,
        help_text="Random id of the agent process that claimed it.",
    )
    deadline_at = models.DateTimeField(null=True, blank=True, help_text="It is stopped when it has not ended by then.")
    losing = models.BooleanField(
        default=False,
        help_text="It is being stopped because of trouble: its work is planned again when it is over.",
    )
    arrived_at = models.DateTimeField(
        null=True, blank=True, help_text="When a machine that boots itself took the key in."
    )
    host = models.CharField(max_length=255, blank=True, default="", help_text="As its agent names it.")
    lease_until = models.DateTimeField(null=True, blank=True)
    posts = models.PositiveIntegerField(
        null=True, blank=True, help_text="How often a dispatcher was asked to begin it; empty: it starts agents itself."
    )
    fault = models.CharField(
        max_length=20,
        choices=Fault.choices,
        blank=True,
        default="",
        help_text="Why it ended before an agent had claimed it; empty: it did not, or nobody can tell.",
    )
    stored_bytes = models.BigIntegerField(default=0, help_text="What its builder has had stored on its account.")
    progress = models.CharField(max_length=200, blank=True)
    log = models.TextField(
        blank=True,
        default="",
        help_text="The end of what the agent logged, as its heartbeats brought it.",
    )

    class Meta:
        constraints = [
            state_check(AttemptState, "attempt_state_known"),
            models.CheckConstraint(
                condition=Q(build__isnull=False, session__isnull=True, power_cycle__isnull=True)
                | Q(build__isnull=True, session__isnull=False, power_cycle__isnull=True)
                | Q(build__isnull=True, session__isnull=True, power_cycle__isnull=False),
                name="attempt_of_one_thing",
            ),
            models.UniqueConstraint(
                fields=["build"],
                condition=_ACTIVE,
                name="build_one_active_attempt",
            ),
            models.UniqueConstraint(
                fields=["session"],
                condition=_ACTIVE,
                name="session_one_active_attempt",
            ),
            models.UniqueConstraint(fields=["power_cycle"], condition=_ACTIVE, name="power_cycle_one_active_attempt"),
            # One machine, one session at a time, whoever dispatches.
            models.UniqueConstraint(fields=["machine"], condition=_ACTIVE, name="machine_one_active_attempt"),
        ]
        indexes = [
            # Fair share looks at those of the last day.
            models.Index(fields=["state_since"], name="attempt_since"),
            # The latest of each host tell how it is. Nulls last, though there are none: no other index is in that
            # order, so PostgreSQL does not go through all attempts by their ids for those of a host that had a few.
            models.Index(F("machine"), LATEST_FIRST, condition=Q(machine__isnull=False), name="attempt_of_machine"),
            models.Index(F("builder"), LATEST_FIRST, condition=Q(builder__isnull=False), name="attempt_of_builder"),
            models.Index(fields=["adapter", "-id"], name="attempt_of_adapter"),
            models.Index(fields=["created_at"], name="attempt_made_since"),
        ]
        ordering = ["id"]

    def __str__(self) -> str:
        return self.key


class BootStart(models.Model):
    """An attempt began a boot. A boot names only the latest one that did."""

    boot = models.ForeignKey("lab.Boot", on_delete=models.CASCADE, related_name="starts")
    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, related_name="boots_begun")
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.boot} by {self.attempt}"


def builds_at_work() -> Coalesce:
    """How many attempts a builder has under way, of a query of builders.

    For each its own look into the index of what is under way: a join would read every attempt there ever was.
    """
    active = Attempt.objects.filter(builder=OuterRef("pk"), state__in=Attempt.ACTIVE).order_by().values("builder")
    return Coalesce(Subquery(active.values(count=Count("pk"))), 0)


class RoundMark(models.Model):
    """One row for each dispatcher: when it last made a round, so that an outage of the service is known afterwards."""

    adapter = models.CharField(max_length=20, unique=True)
    last_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.adapter}: {self.last_at}"

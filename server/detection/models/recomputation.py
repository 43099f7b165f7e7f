"""All that is stored computed anew by the workers: how far it is, and what it found."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from server.core import clock


class Recomputation(models.Model):
    """One time that all is computed anew; the work is in its chunks."""

    code = models.CharField(max_length=60, help_text="Version and hash of the program: no other one takes part.")
    begun_at = models.DateTimeField(default=clock.now)
    ended_at = models.DateTimeField(null=True, blank=True, help_text="When its report was written.")

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"recomputation {self.pk}"


class RecomputationChunk(models.Model):
    """Rows of one kind that are computed anew one after the other, and what was found so far.

    A worker that goes on with it begins after `reached`; whoever is killed loses one row's work at most, or what it did
    since it wrote `rest`.
    """

    class Kind(models.TextChoices):
        FINDING = "finding", "findings"
        TRIAL = "trial", "trials that made no finding"
        NOISE = "noise", "noise of machines"
        FLEET = "fleet", "timelines of a branch"

    recomputation = models.ForeignKey(Recomputation, on_delete=models.CASCADE, related_name="chunks")
    kind = models.CharField(max_length=10, choices=Kind.choices)
    first = models.BigIntegerField(help_text="Id of its first row.")
    last = models.BigIntegerField(help_text="Id of its last row.")
    size = models.PositiveIntegerField(help_text="How many rows it had when it was planned; of timelines: heads.")
    reached = models.BigIntegerField(default=0, help_text="Id of the last row that is done; of timelines: heads.")
    taken = models.PositiveIntegerField(default=0, help_text="How many of its size are done.")
    checked = models.PositiveIntegerField(default=0, help_text="How many rows could be computed.")
    left = models.PositiveIntegerField(default=0, help_text="Of these, whose measurements are in the archive alone.")
    found = models.PositiveIntegerField(default=0, help_text="How many fields differ.")
    differences = ArrayField(models.TextField(), default=list, blank=True, help_text="The first of them.")
    errors = ArrayField(models.TextField(), default=list, blank=True, help_text="Rows that could not be computed.")
    rest = models.JSONField(null=True, blank=True, help_text="What timelines need to go on.")
    tries = models.PositiveSmallIntegerField(default=0, help_text="How often the next row was begun.")
    seconds = models.FloatField(default=0.0, help_text="That it took so far.")
    moved_at = models.DateTimeField(null=True, blank=True, help_text="When a worker wrote here.")
    done_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(kind__in=["finding", "trial", "noise", "fleet"]), name="recomputation_chunk_kind_known"
            )
        ]
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.kind} {self.first} to {self.last}"

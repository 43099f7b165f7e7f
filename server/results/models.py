"""What was measured: benchmarks with their cases and metrics, arrays of values, one for each boot, and where those are
that have left the database.
"""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from server.lab.models import Boot, CoreType, Session

# More than the cases of any `PackedValues`: the id of a measurement is its row's, times this, and its place there.
PLACES = 256


class Benchmark(models.Model):
    """A program that agents run."""

    name = models.SlugField(max_length=60, unique=True)
    title = models.CharField(max_length=200)
    version = models.CharField(
        max_length=64,
        help_text="Hash of its sources: another program is another benchmark.",
    )
    words = models.JSONField(
        default=dict, blank=True, help_text="What words of its cases and their parameters mean: texts by word."
    )

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class BenchmarkVersion(models.Model):
    """A version of a benchmark that something was measured with."""

    benchmark = models.ForeignKey(Benchmark, on_delete=models.PROTECT, related_name="versions", db_index=False)
    hash = models.CharField(max_length=64, help_text="As `Benchmark.version` was.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["benchmark", "hash"], name="benchmark_version_once")]
        ordering = ["benchmark__name", "id"]

    def __str__(self) -> str:
        return f"{self.benchmark.name} {self.hash[:12]}"


class Case(models.Model):
    """A benchmark with one set of parameters."""

    benchmark = models.ForeignKey(Benchmark, on_delete=models.PROTECT, related_name="cases")
    name = models.SlugField(max_length=60)
    title = models.CharField(max_length=200)
    parameters = models.JSONField(
        default=dict, blank=True, help_text="What tells it from other cases of its benchmark: texts by name."
    )
    runs = models.PositiveIntegerField(help_text="Values wanted from each boot, warm-up included.")
    warmup = models.PositiveIntegerField(default=1, help_text="First values of a boot that are kept but not judged.")
    timeout_seconds = models.PositiveIntegerField(default=60)
    enabled = models.BooleanField(default=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["benchmark", "name"], name="case_once"),
            models.CheckConstraint(condition=Q(runs__gt=models.F("warmup")), name="case_has_runs"),
        ]
        ordering = ["benchmark__name", "name"]

    def __str__(self) -> str:
        return f"{self.benchmark.name}/{self.name}"


class Metric(models.Model):
    """One number that a benchmark yields, with its unit and direction."""

    class Better(models.TextChoices):
        LOWER = "lower", "lower is better"
        HIGHER = "higher", "higher is better"
        NONE = "none", "neither: it explains, and is not judged"

    benchmark = models.ForeignKey(Benchmark, on_delete=models.PROTECT, related_name="metrics")
    name = models.SlugField(max_length=60)
    title = models.CharField(max_length=200)
    unit = models.CharField(max_length=40)
    better = models.CharField(max_length=6, choices=Better.choices)
    resolution = models.FloatField(default=0.0, help_text="Smallest step between two values, in `unit`.")
    exact = models.BooleanField(
        default=False, help_text="Two boots of one kernel give the same value to the last digit."
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["benchmark", "name"], name="metric_once"),
            models.CheckConstraint(condition=Q(better__in=["lower", "higher", "none"]), name="metric_better_known"),
        ]
        ordering = ["benchmark__name", "name"]

    def __str__(self) -> str:
        return f"{self.benchmark.name}:{self.name}"


class PackedValues(models.Model):
    """What one boot gave of one metric on one kind of cores, its cases in a row. Written once by COPY, never updated.

    The largest table by far, and read by boots alone: the unique index is enough. A row of its own for each case would
    be four times as long as the few values in it.
    """

    boot = models.ForeignKey(Boot, on_delete=models.CASCADE, related_name="packed", db_index=False)
    metric = models.ForeignKey(Metric, on_delete=models.PROTECT, related_name="packed", db_index=False)
    core_type = models.ForeignKey(CoreType, on_delete=models.PROTECT, related_name="packed", db_index=False)
    version = models.ForeignKey(BenchmarkVersion, on_delete=models.PROTECT, related_name="+", db_index=False)
    recorded_at = models.DateTimeField(auto_now_add=True)
    first_case = models.IntegerField(help_text="As `cases` begins; cases that find no room are in rows after it.")
    cases = ArrayField(models.IntegerField(), help_text="Ids of `Case`.")
    warmups = ArrayField(models.IntegerField(), help_text="Of each case.")
    ends = ArrayField(models.IntegerField(), help_text="How many of `values` there are up to the end of each case.")
    values = ArrayField(models.FloatField(), help_text="In the order they were measured, warm-up first, case by case.")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["boot", "metric", "core_type", "first_case"], name="packed_values_once"),
            models.CheckConstraint(condition=Q(values__len__gt=0), name="packed_values_are_some"),
            models.CheckConstraint(
                condition=Q(
                    first_case=models.F("cases__0"),
                    ends__len=models.F("cases__len"),
                    warmups__len=models.F("cases__len"),
                    cases__len__lt=PLACES,
                ),
                name="packed_values_agree",
            ),
        ]
        ordering = ["boot", "metric", "core_type", "first_case"]
        verbose_name_plural = "packed values"

    def __str__(self) -> str:
        return f"{self.metric} of {self.boot}"


class Summary(models.Model):
    """What stays of a row of `PackedValues` once its samples have left for the archive: a median of each case."""

    id = models.BigIntegerField(primary_key=True, help_text="That of the row of which it stays.")
    boot = models.ForeignKey(Boot, on_delete=models.CASCADE, related_name="summaries", db_index=False)
    metric = models.ForeignKey(Metric, on_delete=models.PROTECT, related_name="+", db_index=False)
    core_type = models.ForeignKey(CoreType, on_delete=models.PROTECT, related_name="+", db_index=False)
    version = models.ForeignKey(BenchmarkVersion, on_delete=models.PROTECT, related_name="+", db_index=False)
    recorded_at = models.DateTimeField()
    first_case = models.IntegerField()
    cases = ArrayField(models.IntegerField(), help_text="Ids of `Case`.")
    medians = ArrayField(models.FloatField(), help_text="Of each case, of the values that were judged.")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["boot", "metric", "core_type", "first_case"], name="summary_once"),
            models.CheckConstraint(
                condition=Q(medians__len=models.F("cases__len"), cases__len__lt=PLACES), name="summary_agrees"
            ),
        ]
        ordering = ["boot", "metric", "core_type", "first_case"]
        verbose_name_plural = "summaries"

    def __str__(self) -> str:
        return f"summary of {self.metric} of {self.boot}"


class KeptKind(models.TextChoices):
    """What a site may keep for some months only; each has a file of its own in the archive."""

    SAMPLES = "samples", "samples"
    CONDITIONS = "conditions", "conditions of boots"
    TRANSITIONS = "transitions", "steps of boots and attempts"
    LOGS = "logs", "logs of agents"


class ArchivePart(models.Model):
    """A Parquet file in the store of artifacts, and its manifest: what left of the sessions of one month."""

    kind = models.CharField(max_length=12, choices=KeptKind.choices)
    month = models.DateField(help_text="Its first day; that in which the sessions were planned.")
    number = models.PositiveIntegerField(help_text="Of the month, from 1: one of very many sessions has several.")
    sha256 = models.CharField(max_length=64, db_index=True, help_text="Of the file, and its name in the store.")
    manifest = models.CharField(max_length=64, db_index=True, help_text="The same of its manifest.")
    size = models.BigIntegerField(help_text="In bytes.")
    rows = models.BigIntegerField()
    sessions = models.PositiveIntegerField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["kind", "month", "number"], name="archive_part_once"),
            models.CheckConstraint(condition=Q(kind__in=KeptKind.values), name="archive_part_kind_known"),
        ]
        ordering = ["kind", "month", "number"]

    def __str__(self) -> str:
        return f"{self.kind} of {self.month:%Y-%m}, part {self.number}"


class ArchivedSession(models.Model):
    """Where in the archive a session's rows of one kind are, and whether they have left the database yet."""

    session = models.ForeignKey(Session, on_delete=models.PROTECT, related_name="archived", db_index=False)
    kind = models.CharField(max_length=12, choices=KeptKind.choices)
    part = models.ForeignKey(ArchivePart, on_delete=models.PROTECT, related_name="of_sessions")
    place = models.PositiveIntegerField(help_text="Its row group in the file, from 0.")
    left_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["session", "kind"], name="archived_session_once")]
        indexes = [models.Index(fields=["id"], condition=Q(left_at=None), name="archived_and_still_here")]
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.kind} of session {self.session_id}"


class KeptMonth(models.Model):
    """How far a month whose rows of one kind may leave has been gone through, so that no sweep begins at the first."""

    kind = models.CharField(max_length=12, choices=KeptKind.choices)
    month = models.DateField()
    held = models.PositiveIntegerField(default=0, help_text="Sessions that stay whole for somebody who uses them.")
    is_over = models.BooleanField(default=False, help_text="Nothing of it is left to leave.")
    looked_at = models.DateTimeField(help_text="By a sweep, the last time.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["kind", "month"], name="kept_month_once")]
        ordering = ["kind", "month"]

    def __str__(self) -> str:
        return f"{self.kind} of {self.month:%Y-%m}"


class Measurement(models.Model):
    """All values of one (boot, case, metric, core type), or their median once they have left: a view of `PackedValues`
    and `Summary`, to be read alone.
    """

    id = models.BigIntegerField(primary_key=True, help_text="Of the row and the place in it, from 1.")
    boot = models.ForeignKey(Boot, on_delete=models.DO_NOTHING, related_name="measurements")
    case = models.ForeignKey(Case, on_delete=models.PROTECT, related_name="measurements")
    metric = models.ForeignKey(Metric, on_delete=models.DO_NOTHING, related_name="+")
    core_type = models.ForeignKey(CoreType, on_delete=models.DO_NOTHING, related_name="+")
    version = models.ForeignKey(BenchmarkVersion, on_delete=models.DO_NOTHING, related_name="+")
    recorded_at = models.DateTimeField()
    warmup = models.PositiveIntegerField()
    number = models.PositiveIntegerField(help_text="Of values; to be had without reading them.")
    values = ArrayField(models.FloatField(), help_text="In the order they were measured, warm-up first.")
    summarised = models.BooleanField(help_text="Its only value is the median of those that have left.")

    class Meta:
        managed = False
        ordering = ["boot", "case", "metric"]

    def __str__(self) -> str:
        return f"{self.case} {self.metric.name} of {self.boot}"

"""What was measured: benchmarks with their cases and metrics, and arrays of values, one for each boot."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from server.lab.models import Boot, CoreType


class Benchmark(models.Model):
    """A program that agents run."""

    name = models.SlugField(max_length=60, unique=True)
    title = models.CharField(max_length=200)
    version = models.CharField(
        max_length=64,
        help_text="Hash of its sources: another program is another benchmark.",
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


class Measurement(models.Model):
    """All values of one (boot, case, metric, core type). Written once by COPY, never updated.

    The largest table by far, and read by boots alone: the unique index is enough.
    """

    boot = models.ForeignKey(Boot, on_delete=models.CASCADE, related_name="measurements", db_index=False)
    case = models.ForeignKey(Case, on_delete=models.PROTECT, related_name="measurements", db_index=False)
    metric = models.ForeignKey(Metric, on_delete=models.PROTECT, related_name="measurements", db_index=False)
    core_type = models.ForeignKey(CoreType, on_delete=models.PROTECT, related_name="measurements", db_index=False)
    version = models.ForeignKey(BenchmarkVersion, on_delete=models.PROTECT, related_name="+", db_index=False)
    recorded_at = models.DateTimeField(auto_now_add=True)
    warmup = models.PositiveIntegerField()
    values = ArrayField(models.FloatField(), help_text="In the order they were measured, warm-up first.")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["boot", "case", "metric", "core_type"], name="measurement_once"),
            models.CheckConstraint(condition=Q(values__len__gt=0), name="measurement_has_values"),
        ]
        ordering = ["boot", "case", "metric"]

    def __str__(self) -> str:
        return f"{self.case} {self.metric.name} of {self.boot}"

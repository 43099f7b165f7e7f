"""A comparison for each cell, with its verdict."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from server.lab.models import CoreType, Session
from server.results.models import Case, Metric


class Verdict(models.TextChoices):
    IMPROVED = "improved", "improved"
    REGRESSED = "regressed", "regressed"
    UNCHANGED = "unchanged", "unchanged"
    INCONCLUSIVE = "inconclusive", "inconclusive"


CHANGES = (Verdict.REGRESSED, Verdict.IMPROVED)


class Comparison(models.Model):
    """Base against patched in one cell: (session, case, metric, core type)."""

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="comparisons")
    case = models.ForeignKey(Case, on_delete=models.PROTECT, related_name="comparisons")
    metric = models.ForeignKey(Metric, on_delete=models.PROTECT, related_name="comparisons")
    core_type = models.ForeignKey(CoreType, on_delete=models.PROTECT, related_name="comparisons")
    verdict = models.CharField(max_length=12, choices=Verdict.choices)
    reason = models.TextField(blank=True, help_text="Why it could not be judged, for people.")
    base_boots = models.PositiveIntegerField()
    patched_boots = models.PositiveIntegerField()
    base_mean = models.FloatField(null=True, help_text="Mean of the boots' values, in the metric's unit.")
    base_sd = models.FloatField(null=True, help_text="Standard deviation between boots, in the metric's unit.")
    patched_mean = models.FloatField(null=True)
    patched_sd = models.FloatField(null=True)
    ratio = models.FloatField(null=True, help_text="patched / base")
    ratio_low = models.FloatField(null=True, help_text="95 % interval")
    ratio_high = models.FloatField(null=True)
    p_value = models.FloatField(null=True, help_text="Against no change, over the averaged error structures")
    p_adjusted = models.FloatField(null=True, help_text="Benjamini-Hochberg over the series' cells")
    p_rank = models.FloatField(null=True, help_text="Exact rank test on boots")
    family_size = models.PositiveIntegerField()
    min_effect = models.FloatField(help_text="Smallest change worth a verdict, as a fraction.")
    mde = models.FloatField(null=True, help_text="Smallest change that would have been seen, as a fraction.")
    flags = ArrayField(models.CharField(max_length=40), default=list, blank=True)
    computed_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["session", "case", "metric", "core_type"],
                name="comparison_once",
            ),
            models.CheckConstraint(
                condition=Q(verdict__in=list(Verdict.values)),
                name="comparison_verdict_known",
            ),
            models.CheckConstraint(
                condition=~Q(verdict="unchanged") | Q(mde__isnull=False),
                name="unchanged_says_its_mde",
            ),
        ]
        ordering = ["session", "case", "metric"]

    def __str__(self) -> str:
        return f"{self.case} on {self.session.machine.name}: {self.verdict}"

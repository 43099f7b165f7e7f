"""What people decide: whose patches may run, and what changed paths ask to be measured."""

from django.db import models
from django.db.models.functions import Now

from server.core import clock
from server.sources.models.trees import words


class TrustedSender(models.Model):
    """An address whose series run without a person's approval, once the mails are proved to be its own."""

    address = models.EmailField(max_length=320, unique=True)
    note = models.TextField(blank=True, help_text="Who it is and who decided.")
    expires_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(default=clock.now, db_default=Now())

    class Meta:
        ordering = ["address"]

    def __str__(self) -> str:
        return self.address


class MeasureRule(models.Model):
    """Series that change a path matching `pattern` ask for `benchmarks`. The pattern ** is the default set."""

    pattern = models.CharField(
        max_length=300, unique=True, help_text="As in .gitignore: mm/*.c, arch/*/lib/memcpy*, **."
    )
    benchmarks = words(100, "Names of benchmarks, or benchmark/case beginnings: will-it-scale/page_fault.")
    note = models.TextField(blank=True)
    enabled = models.BooleanField(default=True, db_default=True)

    class Meta:
        ordering = ["pattern"]

    def __str__(self) -> str:
        return self.pattern

"""Trials about a finding that nobody waits for any more."""

from server.detection.models import Finding
from server.lab.models import Trial
from server.lab.trials.ending import cancel_trial


def stop_trials(finding: Finding, reason: str) -> None:
    """Cancel the open trials that check this finding or its mending; bisections look after their own."""
    asked = Trial.objects.filter(key__startswith=f"finding:{finding.pk}:").exclude(state__in=Trial.FINAL)
    for trial in asked:
        cancel_trial(trial, reason)

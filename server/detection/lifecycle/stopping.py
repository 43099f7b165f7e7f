"""Trials about a finding that nobody waits for any more."""

import re

from django.db import transaction

from server.detection.models import Finding, FindingState
from server.lab.models import Trial
from server.lab.trials.ending import cancel_trial

_KEY = re.compile(r"finding:\d{1,18}:")
_ENDED = (FindingState.INVALID, FindingState.SUPERSEDED)


def stop_trials(finding: Finding, reason: str) -> None:
    """Cancel the open trials that check this finding or its mending; bisections look after their own.

    The caller holds the finding, and who answers a trial holds that first: one that is held now is not waited for, but
    left to the sweep.
    """
    asked = Trial.objects.filter(key__startswith=f"finding:{finding.pk}:").exclude(state__in=Trial.FINAL)
    with transaction.atomic():
        for trial in asked.select_for_update(of=("self",), no_key=True, skip_locked=True):
            cancel_trial(trial, reason)


def stop_forgotten(most: int) -> None:
    """For the sweep: trials about findings that have ended, and for which nobody stopped them."""
    open_trials = Trial.objects.filter(
        purpose__in=[Trial.Purpose.LAYOUT, Trial.Purpose.FIX],
        state__in=[Trial.State.WANTED, Trial.State.MEASURING],
    )
    asked = {int(key.split(":")[1]): key for key in open_trials.values_list("key", flat=True) if _KEY.match(key)}
    ended = Finding.objects.filter(pk__in=asked, state__in=_ENDED).order_by("pk")
    for finding in ended[:most]:
        stop_trials(finding, f"finding {finding.pk} is {finding.state}")

"""Candidates whose timelines took their suspicion back end without a claim."""

from django.db import transaction
from django.db.models import Exists, OuterRef

from server.detection.models import ChangePoint, Finding
from server.lab.models import Trial
from server.lab.trials.ending import cancel_trial
from server.sources.models import Branch

_STANDING = (ChangePoint.State.SUSPECT, ChangePoint.State.SETTLED)


def drop_empty(branch: Branch) -> int:
    """End the branch's candidates that no change point speaks for any more and that fresh boots have not judged yet.

    Returns how many. What fresh boots have seen does not depend on the timelines any more.
    """
    speaking = ChangePoint.objects.filter(finding=OuterRef("pk"), state__in=_STANDING)
    candidates = Finding.objects.filter(branch=branch, state=Finding.State.CANDIDATE).exclude(Exists(speaking))
    dropped = 0
    for finding in candidates.select_related("trial").order_by("pk"):
        if finding.trial is not None and finding.trial.state in Trial.FINAL:
            continue
        machine = finding.change_points.filter(state=ChangePoint.State.MACHINE).exists()
        reason = "it was an event of a machine" if machine else "later points took the suspicion back"
        with transaction.atomic():
            # The trial before its finding, as whoever answers a trial holds them; one that is over speaks for itself.
            if finding.trial is None or cancel_trial(finding.trial, reason):
                dropped += finding.advance(Finding.State.INVALID, reason)
    return dropped

"""Two findings of a branch that turn out to have one culprit are one change: the second one stands down."""

from django.db import transaction
from django.db.models import Exists, OuterRef, Q

from server.detection.lifecycle.locking import held
from server.detection.lifecycle.stopping import stop_trials
from server.detection.models import ChangePoint, Finding

# What was told to people, or decided by them, is the one that stays.
_TOLD = (Finding.State.REPORTED, Finding.State.ACCEPTED, Finding.State.FIXED)
_MOST = 50


def join_same_change(finding: Finding) -> bool:
    """Supersede the finding by the one that tells of its culprit already, and give its change points to that one.

    Runs in the transaction of the caller, who holds the finding; False where it is the first. Two that learn of their
    culprit at once do not see each other: the sweep does.
    """
    if finding.branch_id is None or finding.culprit_id is None or finding.state not in Finding.STANDING:
        return False
    same = Finding.objects.filter(branch=finding.branch_id, culprit=finding.culprit_id, state__in=Finding.STANDING)
    stays = min(same, key=lambda one: (one.state not in _TOLD, one.pk), default=finding)
    if stays.pk == finding.pk:
        return False
    reason = f"the same change as finding {stays.pk}: {finding.culprit} made both"
    if not finding.advance(Finding.State.SUPERSEDED, reason):
        return False
    ChangePoint.objects.filter(finding=finding).update(finding=stays)
    stop_trials(finding, f"finding {finding.pk} is superseded")
    return True


def join_same_changes() -> int:
    """For the sweep: how many findings stood down."""
    other = Finding.objects.filter(
        ~Q(pk=OuterRef("pk")), branch=OuterRef("branch"), culprit=OuterRef("culprit"), state__in=Finding.STANDING
    )
    known = {"branch__isnull": False, "culprit__isnull": False}
    rows = Finding.objects.filter(Exists(other), **known, state__in=Finding.STANDING)
    joined = 0
    for finding_id in rows.order_by("pk").values_list("pk", flat=True)[:_MOST]:
        with transaction.atomic():
            joined += join_same_change(held(finding_id))
    return joined

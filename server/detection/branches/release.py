"""Claims that do not stand: change points released from a finding, two findings that are one change, a claim taken
back.
"""

from collections.abc import Sequence
from enum import StrEnum

from django.db import transaction
from django.db.models import Exists, OuterRef, Q

from server.core.errors import DomainError
from server.core.reasons import Because
from server.detection.branches.candidates import asked_for, take_up_news
from server.detection.branches.change_points import claimed_span, likely_span, nearby
from server.detection.branches.observation import POINT_PARTS
from server.detection.findings.checks import held, stop_trials
from server.detection.models import ChangePoint, Finding, MeasuredHead

_OPEN = (ChangePoint.State.SUSPECT, ChangePoint.State.SETTLED)


def release_others(finding: Finding) -> int:
    """Let go of what moved somewhere else than at the culprit: it is another change; returns how many points.

    While the culprit is not known, a finding holds all that may have moved between its two heads. Runs in the
    transaction of the caller, who holds the finding.
    """
    span = claimed_span(finding)
    points = list(finding.change_points.filter(state__in=_OPEN).select_related(*POINT_PARTS).order_by("pk"))
    if finding.culprit is None or span is None or not points:
        return 0
    heads = MeasuredHead.objects.filter(branch=finding.branch_id, reference=points[0].timeline.reference_id)
    places = sorted(set(heads.exclude(fleet=None).values_list("place", flat=True)))
    away = []
    for point in points:
        own = likely_span([point], places)
        if not own.overlaps(span) and not nearby(point, own, places).overlaps(span):
            away.append(point)
    ask_otherwise(finding, away)
    return len(away)


def release_unasked(finding: Finding) -> int:
    """Let go of what joined a finding, now withdrawn, after its fresh boots were asked for; returns how many points.

    They have not spoken of it, and its timeline does not tell it twice. Runs in the transaction of the caller, who
    holds the finding.
    """
    if finding.branch_id is None or finding.trial is None:
        return 0
    points = list(finding.change_points.filter(state__in=_OPEN).select_related(*POINT_PARTS).order_by("pk"))
    asked = asked_for(finding.trial, points)
    away = [point for point in points if point not in asked]
    ask_otherwise(finding, away)
    return len(away)


def ask_otherwise(finding: Finding, points: Sequence[ChangePoint]) -> None:
    """The points get a question of their own: the finding does not speak for them."""
    if not points:
        return
    own = ChangePoint.objects.filter(pk__in=[point.pk for point in points])
    own.update(finding=None)
    timeline = points[0].timeline
    heads = MeasuredHead.objects.filter(
        branch=finding.branch_id, reference=timeline.reference_id, fleet__virtual=timeline.machine.virtual
    )
    newest = heads.select_related("branch__tree", "reference", "trial").order_by("-place").first()
    if newest is not None:
        take_up_news(newest, list(own.select_related(*POINT_PARTS).order_by("pk")))


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
    reason = Because.SAME_CHANGE(f"the same change as finding {stays.pk}: {finding.culprit} made both")
    if not finding.advance(Finding.State.SUPERSEDED, reason, same_as=stays):
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


class Why(StrEnum):
    NOISE = "noise"
    LAYOUT = "layout"
    MACHINE = "machine"
    WRONG = "wrong"


_WITHDRAWN = {
    Why.NOISE: Because.NOISE,
    Why.LAYOUT: Because.LAYOUT,
    Why.MACHINE: Because.MACHINE,
    Why.WRONG: Because.BY_PERSON,
}


def invalidate(finding: Finding, *, actor: str, why: Why, reason: str) -> bool:
    """Withdraw the finding; trials about it are canceled, and suspects that it never measured are asked about.

    `actor` is empty where the service decides. False if it is withdrawn already. DomainError `no-reason`, or
    `conflict` where a finding cannot be withdrawn any more.
    """
    if not reason.strip():
        raise DomainError("no-reason", f"finding {finding.pk} is not withdrawn without a reason")
    with transaction.atomic():
        row = held(finding.pk)
        if row.state == Finding.State.INVALID:
            return False
        if Finding.State.INVALID not in Finding.NEXT.get(row.state, frozenset()):
            raise DomainError("conflict", f"finding {row.pk} is {Finding.State(row.state).label}: it stays so")
        row.advance(Finding.State.INVALID, _WITHDRAWN[why](f"{why.value}: {reason.strip()}"), actor=actor)
        stop_trials(row, f"finding {row.pk} is withdrawn")
        release_unasked(row)
        for name in ("state", "reason", "reason_code", "state_since"):
            setattr(finding, name, getattr(row, name))
    return True

"""A search that ended without an answer begins once more: a person asks for it, or the reason it ended for is gone."""

import math
from collections.abc import Sequence

from django.conf import settings
from django.db import transaction
from django.db.models import OuterRef, Q, QuerySet, Subquery

from server.core.models import Transition
from server.core.tasks import enqueue
from server.detection.bisecting.beginning import BEFORE, CHANGED, create, may_search, targets_of
from server.detection.bisecting.locking import lock
from server.detection.models import Bisection, BisectionState, Comparison, Finding
from server.sources.models import SeriesState

_WANTED_AGAIN = "its revision is wanted again"
_UNANSWERED = (BisectionState.GAVE_UP, BisectionState.CANCELED)


def hold(finding_id: int) -> tuple[list[Bisection], Finding]:
    """The bisections of a finding and then itself, held to the end of the transaction.

    In this order, since a bisection that ends holds itself when it takes the finding.
    """
    ids = Bisection.objects.filter(finding=finding_id).order_by("pk").values_list("pk", flat=True)
    bisections = [lock(pk) for pk in ids]
    rows = Finding.objects.select_for_update(of=("self",), no_key=True).select_related("series")
    return bisections, rows.get(pk=finding_id)


def unanswered(bisections: Sequence[Bisection]) -> list[Bisection]:
    """Those that gave up or were canceled, on microarchitectures for which no other one found anything."""
    found = {row.machine.uarch_id for row in bisections if row.state == BisectionState.FOUND}
    return [row for row in bisections if row.state in _UNANSWERED and row.machine.uarch_id not in found]


def search_again(
    finding: Finding, bisections: Sequence[Bisection], ended: Sequence[Bisection], *, reason: str, actor: str = ""
) -> list[Bisection]:
    """Another round of those that `ended`, from end to end with fresh tries and budget; the finding is BISECTING.

    Where another machine speaks for a microarchitecture by now, that one searches. Returns those that search again;
    none, and nothing is changed, where no cell speaks for a change any more. The caller holds all of them.
    """
    targets = {target.session.machine.uarch_id: target for target in targets_of(finding)}
    by_machine = {row.machine_id: row for row in bisections}
    wanted = [targets[uarch] for uarch in dict.fromkeys(row.machine.uarch_id for row in ended) if uarch in targets]
    wanted = [one for one in wanted if by_machine.get(one.session.machine_id) in (None, *ended)]
    if not wanted or not finding.advance(Finding.State.BISECTING, reason, actor=actor):
        return []
    begun = []
    for target in wanted:
        row = by_machine.get(target.session.machine_id)
        if row is None:
            begun.append(create(finding, target, bisections[0].revisions))
        elif _next_round(row, target, reason, actor):
            begun.append(row)
    enqueue("detection.tend", "bisections")
    return begun


def _next_round(bisection: Bisection, target: Comparison, reason: str, actor: str) -> bool:
    return bisection.advance(
        BisectionState.ENDS,
        reason,
        actor=actor,
        round=bisection.round + 1,
        low=0,
        high=len(bisection.revisions) - 1,
        culprit=None,
        target=target,
        effect=math.log(target.ratio or 1),
    )


def search_on(most: int) -> None:
    """For the sweep: searches that were canceled since nobody asked any more, where somebody does again.

    Such are those of findings whose acceptance has expired or was withdrawn, or that were mended and are no longer.
    What a person canceled is left to persons.
    """
    if settings.BISECT_HOURS <= 0:
        return
    rows = Bisection.objects.filter(finding__state__in=BEFORE, finding__kind__in=CHANGED)
    wanted = rows.exclude(finding__series__state=SeriesState.SUPERSEDED)
    ids = wanted.filter(Q(pk__in=_stopped()) | ~Q(state__in=Bisection.FINAL)).values_list("finding_id", flat=True)
    for finding_id in ids.order_by("finding_id").distinct()[:most]:
        with transaction.atomic():
            _search_on(*hold(finding_id))


def _search_on(bisections: Sequence[Bisection], finding: Finding) -> None:
    if not may_search(finding):
        return
    stopped = set(_stopped().filter(finding=finding).values_list("pk", flat=True))
    ended = [row for row in bisections if row.pk in stopped]
    wanted = [row for row in unanswered(bisections) if row in ended]
    begun = search_again(finding, bisections, wanted, reason=_WANTED_AGAIN)
    if finding.state in BEFORE and any(row.state not in Bisection.FINAL for row in bisections):
        # Taken back before the sweep had canceled anything: what is under way goes on.
        finding.advance(Finding.State.BISECTING, _WANTED_AGAIN)
    for row in ended:
        if row not in begun:
            row.advance(BisectionState.GAVE_UP, "nothing speaks for a change on this machine any more", culprit=None)


def _stopped() -> QuerySet[Bisection]:
    """Canceled by the service, not by a person."""
    lines = Transition.objects.filter(subject="bisection", subject_id=OuterRef("pk")).order_by("-id")
    canceled = Bisection.objects.filter(state=BisectionState.CANCELED)
    return canceled.annotate(canceled_by=Subquery(lines.values("actor")[:1])).filter(canceled_by="")

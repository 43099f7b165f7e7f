"""Heads enter the timelines in the order of their places, each once."""

from collections.abc import Sequence
from datetime import timedelta

import structlog
from django.conf import settings
from django.db import transaction

from server.core import clock
from server.core.locks import wait_for_lock
from server.detection.heads.candidates import take_up_news
from server.detection.heads.evidence import ratios_of
from server.detection.heads.fleets import Fleet, read_fleet, store_watches
from server.detection.heads.publishing import publish
from server.detection.heads.watching import look
from server.detection.models import Comparison, MeasuredHead, Timeline, TimelinePoint
from server.lab.models import Trial

log = structlog.get_logger(__name__)


def observe_due(branch_id: int, reference_id: int, *, most: int) -> int:
    """Let heads that are due enter the timelines of a branch and reference, `most` at once; returns how many did."""
    for done in range(most):
        if not observe_next(branch_id, reference_id):
            return done
    return most


@transaction.atomic
def observe_next(branch_id: int, reference_id: int) -> bool:
    """Let the next head enter, with all that follows from it; False when none is due.

    One transaction under one lock, so that a head enters once and whole, whoever asks and whoever is killed.
    """
    wait_for_lock(f"heads:{branch_id}:{reference_id}")
    head = _next_due(branch_id, reference_id)
    if head is None:
        return False
    comparisons, virtual = ratios_of(head.trial)
    head.observed_at = clock.now()
    if comparisons:
        _observe(head, read_fleet(head, comparisons, virtual=virtual), comparisons)
    else:
        head.save(update_fields=["observed_at"])
    log.info("head_observed", trace=head.trial.trace, head=head.pk, place=head.place, points=len(comparisons))
    return True


def waiting_branches() -> list[tuple[int, int]]:
    """Branches and references that have heads whose points are not in their timelines yet."""
    waiting = MeasuredHead.objects.filter(observed_at=None).order_by("branch", "reference")
    return list(waiting.values_list("branch_id", "reference_id").distinct())


def _next_due(branch_id: int, reference_id: int) -> MeasuredHead | None:
    """The first head whose trial is over; the earlier ones are waited for, but not longer than the site's patience.

    One that is passed by enters as a late one when its trial is over.
    """
    impatient = clock.now() - timedelta(hours=settings.HEAD_PATIENCE_HOURS)
    waiting = MeasuredHead.objects.filter(branch=branch_id, reference=reference_id, observed_at=None)
    for head in waiting.select_related("branch__tree", "reference", "revision", "trial").order_by("place"):
        if head.trial.state in Trial.FINAL:
            return head
        if head.created_at > impatient:
            return None
    return None


def _observe(head: MeasuredHead, fleet: Fleet, comparisons: Sequence[Comparison]) -> None:
    newest = fleet.row.newest_place
    late = newest is not None and head.place < newest
    values = {str(fleet.of(one).pk): one.ratio for one in comparisons if one.ratio is not None}
    looked = look(fleet.watch, head.place, values, late=late)
    TimelinePoint.objects.bulk_create(_point(head, fleet.of(one), one) for one in comparisons)
    store_watches(head.place, {name: looked.fleet.watches[name] for name in values})
    fleet.row.events = [list(event) for event in looked.fleet.events]
    fleet.row.observed += 1
    fleet.row.newest_place = head.place if newest is None else max(head.place, newest)
    fleet.row.save(update_fields=["events", "observed", "newest_place"])
    head.fleet, head.observed_as = fleet.row, fleet.row.observed
    head.save(update_fields=["observed_at", "fleet", "observed_as"])
    take_up_news(head, publish(head, fleet, looked))


def _point(head: MeasuredHead, timeline: Timeline, comparison: Comparison) -> TimelinePoint:
    assert comparison.ratio is not None
    return TimelinePoint(
        timeline=timeline,
        head=head,
        comparison=comparison,
        place=head.place,
        ratio=comparison.ratio,
        ratio_low=comparison.ratio_low,
        ratio_high=comparison.ratio_high,
    )

"""Heads enter the timelines in the order of their places, each once; what the watch says becomes change points and
questions.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from datetime import timedelta

import structlog
from django.conf import settings
from django.db import transaction

from server.core import clock
from server.core.database import wait_for_lock
from server.detection.branches.candidates import take_up_news
from server.detection.branches.change_points import Span, claimed_span, span_of
from server.detection.branches.fleet import BranchFleet, Looked, Told, look, ratios_of, read_fleet, store_watches
from server.detection.models import (
    ChangePoint,
    Comparison,
    Finding,
    MachineQuestion,
    MeasuredHead,
    Timeline,
    TimelinePoint,
)
from server.detection.noise.questions import open_question
from server.lab.models import Machine, Trial
from server.stats.changepoints.causes import MachineEvent
from server.stats.changepoints.watch import NEAR, StepState

_OPEN = (ChangePoint.State.SUSPECT, ChangePoint.State.SETTLED)
_LONGEST_SUBJECT = 80
_MOST_NAMED = 3
# What is told of a change point, and what a confirmation asks for, names these.
POINT_PARTS = ("timeline__machine__uarch", "timeline__case__benchmark", "timeline__metric")


def publish(head: MeasuredHead, fleet: BranchFleet, looked: Looked) -> list[ChangePoint]:
    """Write the news of a head; returns the change points that are new.

    A change point that fresh boots have confirmed stays, whatever its timeline says later; one that joined and was not
    seen by them goes on as its timeline says. One that belongs to an event of its machine stays the machine's.
    """
    fresh = [_suspect(fleet, told) for told in looked.told if told.state == StepState.SUSPECT]
    moved = [_settle(told) for told in looked.told if told.state != StepState.SUSPECT]
    made = [point for point, created in fresh if created] + [point for point in moved if point is not None]
    for event in looked.events:
        _ask_about(head, fleet, event)
    mine = ChangePoint.objects.filter(pk__in=[point.pk for point in made], state__in=_OPEN)
    return list(mine.select_related(*POINT_PARTS).order_by("pk"))


def _suspect(fleet: BranchFleet, told: Told) -> tuple[ChangePoint, bool]:
    return ChangePoint.objects.get_or_create(
        timeline=fleet.timelines[told.timeline],
        first_place=told.first_place,
        defaults={
            "place": told.place,
            "before_place": told.before_place,
            "effect": told.effect,
            "score": told.score,
            "state": ChangePoint.State.SUSPECT,
        },
    )


def _settle(told: Told) -> ChangePoint | None:
    """Settled at the place that looks best now, or withdrawn.

    Returns the change point where it must be looked at once more, at another place: than where fresh boots refuted it,
    or than where the finding stands that it had joined.
    """
    point = ChangePoint.objects.select_related("finding__culprit", "finding__before").get(
        timeline=int(told.timeline), first_place=told.first_place
    )
    if told.state == StepState.WITHDRAWN:
        if point.state == ChangePoint.State.SUSPECT:
            ChangePoint.objects.filter(pk=point.pk).update(state=ChangePoint.State.WITHDRAWN)
        return None
    again = _is_elsewhere(point, told)
    if point.state != ChangePoint.State.SUSPECT and not again:
        return None
    point.state, point.place, point.before_place = ChangePoint.State.SETTLED, told.place, told.before_place
    point.effect, point.score = told.effect, told.score
    if again:
        point.finding = None
    point.save(update_fields=["state", "place", "before_place", "effect", "score", "finding"])
    return point if again else None


def _is_elsewhere(point: ChangePoint, told: Told) -> bool:
    """Whether the place that looks best now is none of those that fresh boots have spoken of for this step."""
    if point.finding is None:
        return False
    if point.state == ChangePoint.State.WITHDRAWN:
        tested = span_of(point.finding)
        return tested is not None and not tested.before < told.place <= tested.after
    joined = point.state == ChangePoint.State.SUSPECT and point.finding.state in Finding.STANDING
    claimed = claimed_span(point.finding) if joined else None
    return claimed is not None and not Span(told.before_place, told.place).overlaps(claimed)


def _ask_about(head: MeasuredHead, fleet: BranchFleet, event: MachineEvent) -> None:
    """A question about the machine, and the change points there are its own: they are no finding's any more."""
    machine = Machine.objects.get(pk=int(event.machine))
    open_question(
        f"event:{fleet.row.pk}:{machine.pk}:{event.revision}",
        MachineQuestion.Kind.EVENT,
        machine,
        _told(head, fleet, event),
        branch=head.branch,
        place=event.revision,
        trace=head.trial.trace,
    )
    low, high = near(fleet, event.revision)
    points = ChangePoint.objects.filter(timeline__in=[int(name) for name in event.shifts], place__range=(low, high))
    points.filter(state__in=_OPEN).exclude(finding__state__in=Finding.STANDING).update(state=ChangePoint.State.MACHINE)


def near(fleet: BranchFleet, place: int) -> tuple[int, int]:
    """The places of the heads around one that may be the same step, by the number of heads between them."""
    measured = sorted({revision for watch in fleet.watch.watches.values() for revision in watch.revisions})
    at = bisect_left(measured, place)
    if not measured:
        return place, place
    return measured[max(at - NEAR + 1, 0)], max(measured[min(at + NEAR - 1, len(measured) - 1)], place)


def _told(head: MeasuredHead, fleet: BranchFleet, event: MachineEvent) -> str:
    largest = sorted(event.shifts.items(), key=lambda one: -abs(one[1]))[:_MOST_NAMED]
    cells = ", ".join(f"{_cell(fleet.timelines[name])} {100 * math.expm1(shift):+.1f} %" for name, shift in largest)
    of_branch = MeasuredHead.objects.filter(branch=head.branch_id, reference=head.reference_id, place=event.revision)
    first = of_branch.select_related("revision").first()
    where = f"{first.revision.sha[:12]} {first.revision.subject[:_LONGEST_SUBJECT]}" if first else "a head"
    return (
        f"{event.moved} of its {event.measured} timelines on {head.branch} moved at {where} (place {event.revision}), "
        f"as other machines did not ({cells}): a change of the machine itself?"
    )


def _cell(timeline: Timeline) -> str:
    return f"{timeline.metric.name} of {timeline.case.benchmark.name}/{timeline.case.name}"


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


def _observe(head: MeasuredHead, fleet: BranchFleet, comparisons: Sequence[Comparison]) -> None:
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

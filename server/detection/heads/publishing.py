"""What the watch says becomes change points, and questions about machines."""

import math
from bisect import bisect_left

from server.detection.heads.boundaries import Span, claimed_span, span_of
from server.detection.heads.fleets import Fleet
from server.detection.heads.watching import Looked, Told
from server.detection.models import ChangePoint, Finding, MachineQuestion, MeasuredHead, Timeline
from server.detection.noise.questions import open_question
from server.lab.models import Machine
from server.stats.events import MachineEvent
from server.stats.watch import NEAR
from server.stats.watch_state import State

_OPEN = (ChangePoint.State.SUSPECT, ChangePoint.State.SETTLED)
_MOST_NAMED = 3
# What is told of a change point, and what a confirmation asks for, names these.
POINT_PARTS = ("timeline__machine__uarch", "timeline__case__benchmark", "timeline__metric")


def publish(head: MeasuredHead, fleet: Fleet, looked: Looked) -> list[ChangePoint]:
    """Write the news of a head; returns the change points that are new.

    A change point that fresh boots have confirmed stays, whatever its timeline says later; one that joined and was not
    seen by them goes on as its timeline says. One that belongs to an event of its machine stays the machine's.
    """
    fresh = [_suspect(fleet, told) for told in looked.told if told.state == State.SUSPECT]
    moved = [_settle(told) for told in looked.told if told.state != State.SUSPECT]
    made = [point for point, created in fresh if created] + [point for point in moved if point is not None]
    for event in looked.events:
        _ask_about(head, fleet, event)
    mine = ChangePoint.objects.filter(pk__in=[point.pk for point in made], state__in=_OPEN)
    return list(mine.select_related(*POINT_PARTS).order_by("pk"))


def _suspect(fleet: Fleet, told: Told) -> tuple[ChangePoint, bool]:
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
    if told.state == State.WITHDRAWN:
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


def _ask_about(head: MeasuredHead, fleet: Fleet, event: MachineEvent) -> None:
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


def near(fleet: Fleet, place: int) -> tuple[int, int]:
    """The places of the heads around one that may be the same step, by the number of heads between them."""
    measured = sorted({revision for watch in fleet.watch.watches.values() for revision in watch.revisions})
    at = bisect_left(measured, place)
    if not measured:
        return place, place
    return measured[max(at - NEAR + 1, 0)], max(measured[min(at + NEAR - 1, len(measured) - 1)], place)


def _told(head: MeasuredHead, fleet: Fleet, event: MachineEvent) -> str:
    largest = sorted(event.shifts.items(), key=lambda one: -abs(one[1]))[:_MOST_NAMED]
    cells = ", ".join(f"{_cell(fleet.timelines[name])} {100 * math.expm1(shift):+.1f} %" for name, shift in largest)
    return (
        f"{event.moved} of its {event.measured} timelines on {head.branch} moved at place {event.revision}, "
        f"as other machines did not ({cells}): a change of the machine itself?"
    )


def _cell(timeline: Timeline) -> str:
    return f"{timeline.metric.name} of {timeline.case.name}"

"""Whether what a finding says to have regressed went back to its old level at a later head."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from server.detection.heads.boundaries import SAME_WITHIN
from server.detection.heads.wording import is_worse
from server.detection.models import ChangePoint, Finding, MeasuredHead
from server.sources.models import Revision

_STANDING = (ChangePoint.State.SUSPECT, ChangePoint.State.SETTLED)
# A step back of less than this share of the step does not mend it, nor one that fewer of its timelines show: most of
# the other changes of a branch touch some of them.
_LARGE_ENOUGH = 0.5
_MANY_ENOUGH = 0.5


@dataclass(frozen=True)
class StepBack:
    """A step that may mend a finding; `revision` is the first measured head of the new level."""

    change_point: ChangePoint
    place: int
    revision: Revision


def change_points_after(finding: Finding) -> list[StepBack]:
    """Where the finding's regressed timelines went back, by half of the step or more, in order of place.

    On each of its microarchitectures half of them or more must have done so, within two heads; a machine that was
    measured no more does not count. Only steps after the head that the finding ends at; of a finding without timelines
    there are none.
    """
    own = _regressed(finding)
    ends = MeasuredHead.objects.filter(branch=finding.branch_id, revision=finding.after_id)
    end = min(ends.values_list("place", flat=True), default=None)
    if not own or end is None:
        return []
    later = ChangePoint.objects.filter(timeline__in=own, place__gt=end, state__in=_STANDING)
    back: dict[int, list[ChangePoint]] = defaultdict(list)
    for point in later.order_by("place", "pk"):
        if -point.effect / own[point.timeline_id].effect >= _LARGE_ENOUGH:
            back[point.place].append(point)
    if not back:
        # Sweeps ask this of every regression, and most of them never went back.
        return []
    heads = MeasuredHead.objects.filter(branch=finding.branch_id, place__range=(min(back), max(back)))
    heads = heads.exclude(fleet=None)
    places = sorted(set(heads.values_list("place", flat=True)))
    found = []
    for number, place in enumerate(places):
        near = places[max(number - SAME_WITHIN, 0) : number + 1]
        gone = {point.timeline_id for one in near for point in back.get(one, ())}
        if place in back and _most(gone, own, place):
            found.append(place)
    revisions = {head.place: head.revision for head in heads.filter(place__in=found).select_related("revision")}
    return [StepBack(back[place][0], place, revisions[place]) for place in found]


def _regressed(finding: Finding) -> Mapping[int, ChangePoint]:
    """The finding's steps for the worse that are sure, by timeline."""
    points = finding.change_points.filter(state=ChangePoint.State.SETTLED)
    rows = points.select_related("timeline__machine", "timeline__metric").defer("timeline__watch").order_by("pk")
    return {point.timeline_id: point for point in rows if is_worse(point)}


def _most(gone: Collection[int], own: Mapping[int, ChangePoint], place: int) -> bool:
    """Whether enough of the timelines of each microarchitecture that was measured at this place are among those."""
    every, some = defaultdict[int, int](int), defaultdict[int, int](int)
    for name, point in own.items():
        if point.timeline.last_place >= place:
            every[point.timeline.machine.uarch_id] += 1
            some[point.timeline.machine.uarch_id] += name in gone
    return bool(every) and all(some[uarch] >= _MANY_ENOUGH * count for uarch, count in every.items())

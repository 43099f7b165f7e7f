"""Where pages put the steps of timelines: where the fresh boots of their finding saw the change, once they have.

A step is published at the head that looks best for all timelines of a machine together. Where two changes lie close to
each other, that is the head of one of them; the finding asks its own points and fresh boots, and knows better.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import exp

from django.db.models import OuterRef, QuerySet, Subquery

from server.detection.models import ChangePoint, Comparison, Finding, MeasuredHead


@dataclass(frozen=True, slots=True)
class PlacedStep:
    """`ratio` is after / before. Where it `is_moved`, places and ratio are the finding's and not the timeline's own."""

    change: ChangePoint
    place: int
    before_place: int
    ratio: float
    is_moved: bool = False

    @property
    def state(self) -> str:
        label = ChangePoint.State(self.change.state).label
        return f"{label}; place and size by the fresh boots of the finding" if self.is_moved else label


def with_places(rows: "QuerySet[ChangePoint]") -> "QuerySet[ChangePoint]":
    """With their findings and what else `placed` asks of each, in the same query."""
    heads = MeasuredHead.objects.filter(branch=OuterRef("timeline__branch"), reference=OuterRef("timeline__reference"))

    def place_of(end: str) -> Subquery:
        return Subquery(heads.filter(revision=OuterRef(f"finding__{end}")).values("place")[:1])

    fresh = Comparison.objects.filter(
        session__trial=OuterRef("finding__trial"),
        session__machine=OuterRef("timeline__machine"),
        case=OuterRef("timeline__case"),
        metric=OuterRef("timeline__metric"),
        core_type=OuterRef("timeline__core_type"),
        ratio__gt=0,
    )
    return rows.select_related("finding").annotate(
        claimed_before=place_of("before"),
        claimed_after=place_of("after"),
        claimed_culprit=place_of("culprit"),
        fresh_ratio=Subquery(fresh.order_by("pk").values("ratio")[:1]),
    )


def placed(changes: Iterable[ChangePoint]) -> list[PlacedStep]:
    """The latest first; a step that its timeline tells twice, once."""
    found: dict[tuple[int, int, bool], PlacedStep] = {}
    for one in map(_placed, changes):
        key = one.change.timeline_id, one.place, one.ratio > 1
        known = found.get(key)
        if known is None or (known.is_moved and not one.is_moved):
            found[key] = one
    return sorted(found.values(), key=lambda one: (-one.place, one.change.pk))


def _placed(change: ChangePoint) -> PlacedStep:
    own = PlacedStep(change, change.place, change.before_place, exp(change.effect))
    before, after = getattr(change, "claimed_before", None), getattr(change, "claimed_after", None)
    ratio = getattr(change, "fresh_ratio", None)
    stands = change.finding is not None and change.finding.state in Finding.STANDING
    if not stands or before is None or after is None or ratio is None:
        return own
    after = getattr(change, "claimed_culprit", None) or after
    if (change.before_place < after and before < change.place) or (ratio > 1) != (change.effect > 0):
        return own
    return PlacedStep(change, after, before, ratio, is_moved=True)

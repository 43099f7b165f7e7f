"""Two kernels that no session measured side by side: what their figures say all the same, and what is known of the way
from one to the other.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db.models import Q, QuerySet

from server.core.rows.together import Row
from server.dashboard.verdicts.first_words import movement
from server.detection.findings.vector import as_speed
from server.detection.models import ChangePoint, Comparison, Finding, MeasuredHead
from server.detection.trials.naming import revisions_named
from server.results.models import Metric
from server.sources.models import Revision


@dataclass(frozen=True, slots=True)
class FoundBetween:
    """A finding whose change lies between two heads of a branch, or may."""

    id: int
    headline: str


def apart_sentence(cells: Sequence[Comparison], judged: int) -> str:
    """Nothing is claimed of these cells; but a reader sees their intervals, and must not hear that there is nothing."""
    differ = [cell for cell in cells if is_beyond_noise(cell)]
    begin = f"Not judged: {len(cells)} of {len(cells) + judged} cells were" if judged else "Not judged:"
    told = f"{begin} measured in different sessions. "
    if not differ:
        return told + f"Without that, none of {len(cells)} cells differs by more than its noise."
    sides = [max(found, key=movement) for side in (True, False) if (found := [c for c in differ if _slower(c) is side])]
    count = f"{len(differ)} of {len(cells)} cells differ{'s' if len(differ) == 1 else ''}"
    return f"{told}Without that, {count} by more than the noise of both; {' and '.join(map(at_most, sides))}."


def at_most(cell: Comparison) -> str:
    """As in `the most 1.70x slower in time of mm/copy on zen3`: what was seen, which is no bound."""
    said = as_speed(cell.ratio, cell.metric.better) if cell.ratio is not None else "changed"
    name = f"{cell.case.benchmark.name}/{cell.case.name}"
    return f"the most {said} in {cell.metric.name} of {name} on {cell.session.machine.uarch.name}"


def is_beyond_noise(cell: Comparison) -> bool:
    """Whether its whole interval lies beyond the smallest effect that counts."""
    if cell.ratio_low is None or cell.ratio_high is None:
        return False
    return cell.ratio_low > 1 + cell.min_effect or cell.ratio_high < 1 / (1 + cell.min_effect)


def _slower(cell: Comparison) -> bool:
    return ((cell.ratio or 1.0) < 1) == (cell.metric.better == Metric.Better.HIGHER)


_MOST_FOUND = 12


def heads_named(word: str) -> "QuerySet[Any, Any]":
    """Where branches have the commit of this word, of which `found_between` reads."""
    heads = MeasuredHead.objects.filter(revision__in=revisions_named(word).values("pk"))
    return heads.order_by().values_list("revision", "branch", "reference", "place")


def found_between(base: Revision, patched: Revision, heads: Iterable[Row]) -> tuple[FoundBetween, ...]:
    """Standing findings of branches that measured both, by the steps of their timelines. One query at most."""
    places: dict[tuple[int, int], set[int]] = {}
    for revision, branch, reference, place in heads:
        if revision not in (base.pk, patched.pk):
            continue
        places.setdefault((branch, reference), set()).add(place)
    ways = [(branch, min(found), max(found)) for (branch, _), found in places.items() if len(found) > 1]
    if not ways:
        return ()
    steps = Q()
    for branch, low, high in ways:
        steps |= Q(timeline__branch=branch, before_place__lt=high, place__gt=low)
    rows = Finding.objects.filter(
        pk__in=ChangePoint.objects.filter(steps, finding__isnull=False).values("finding"), state__in=Finding.STANDING
    )
    if not settings.VIRTUAL_VERDICTS:
        rows = rows.filter(virtual=False)
    return tuple(FoundBetween(*row) for row in rows.order_by("pk").values_list("pk", "headline")[:_MOST_FOUND])

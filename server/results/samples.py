"""Reading what was measured: every value of a session, in pieces of which memory holds one at a time.

Each piece is a query of its own, so that no connection has to live as long as a slow reader takes.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.postgres.aggregates import BoolOr
from django.db.models import Max, QuerySet, Sum

from server.lab.models import BootState
from server.results.models import ArchivedSession, KeptKind, Measurement

# So many values are in memory at once.
_VALUES_AT_ONCE = 50_000
_IDS = ("case", "metric", "core_type")
_NAMES = ("case__benchmark__name", "case__name", "metric__name", "metric__unit", "metric__better", "core_type__name")


@dataclass(frozen=True)
class SampledCell:
    """One (case, metric, core type) of a session by its ids: its names, how many values it has, when the last came, and
    whether some are in the archive.
    """

    ids: tuple[int, int, int]
    benchmark: str
    case: str
    metric: str
    unit: str
    better: str
    core_type: str
    numbers: int
    last_at: datetime
    has_left: bool

    @property
    def names(self) -> dict[str, str]:
        own = ("benchmark", "case", "metric", "unit", "better", "core_type")
        return {name: getattr(self, name) for name in own}


def archived(sessions: Collection[int], kind: str = KeptKind.SAMPLES) -> dict[int, ArchivedSession]:
    """Of those of these sessions whose rows have left the database, where in the archive they are. One query."""
    rows = ArchivedSession.objects.filter(session__in=sessions, kind=kind).exclude(left_at=None)
    return {row.session_id: row for row in rows.select_related("part")}


def sampled_cells(measured: "QuerySet[Measurement]") -> list[SampledCell]:
    """The cells of these measurements, by name. One query."""
    sizes = (
        measured.order_by(*_NAMES)
        .values_list(*_IDS, *_NAMES)
        .annotate(Sum("number"), Max("recorded_at"), has_left=BoolOr("summarised"))
    )
    return [SampledCell((case, metric, core_type), *rest) for case, metric, core_type, *rest in sizes]


def sample_columns(
    measured: "QuerySet[Measurement]", cells: Sequence[SampledCell]
) -> Iterator[tuple[SampledCell, dict[str, list[Any]]]]:
    """Every value, cell by cell: `boots` (positions), `arms`, `judged`, `warmup` and `values`, by the order of boots.

    Straight from the rows: thousands of numbers through a serializer would take most of the time.
    """
    some: list[SampledCell] = []
    size = 0
    for cell in cells:
        if some and size + cell.numbers > _VALUES_AT_ONCE:
            yield from _filled(measured, some)
            some, size = [], 0
        some.append(cell)
        size += cell.numbers
    yield from _filled(measured, some)


def _filled(
    measured: "QuerySet[Measurement]", some: Sequence[SampledCell]
) -> Iterator[tuple[SampledCell, dict[str, list[Any]]]]:
    cases, metrics, core_types = (
        (set(ids) for ids in zip(*(cell.ids for cell in some), strict=True)) if some else ((),) * 3
    )
    found: dict[tuple[int, ...], dict[str, list[Any]]] = {
        cell.ids: {"boots": [], "arms": [], "judged": [], "warmup": [], "values": []} for cell in some
    }
    near = measured.filter(case__in=cases, metric__in=metrics, core_type__in=core_types).order_by("boot__position")
    rows = near.values_list(*_IDS, "boot__position", "boot__arm", "boot__state", "warmup", "values")
    for case, metric, core_type, position, arm, state, warmup, values in rows.iterator(chunk_size=500):
        # Some columns beside these may be of the same cases.
        if (column := found.get((case, metric, core_type))) is not None:
            column["boots"].append(position)
            column["arms"].append(arm)
            column["judged"].append(state == BootState.MEASURED)
            column["warmup"].append(warmup)
            column["values"].append(values)
    return ((cell, found.pop(cell.ids)) for cell in some)


def measurement_batches(measured: "QuerySet[Measurement]") -> Iterator[list[Measurement]]:
    """All rows by their ids, some at a time."""
    first, last, size = 0, 0, 0
    for pk, numbers in list(measured.order_by("pk").values_list("pk", "number")):
        if first and size + numbers > _VALUES_AT_ONCE:
            yield list(measured.filter(pk__range=(first, last)).order_by("pk"))
            first, size = 0, 0
        first, last, size = first or pk, pk, size + numbers
    if first:
        yield list(measured.filter(pk__range=(first, last)).order_by("pk"))

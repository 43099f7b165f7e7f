"""Cells: what the boots of sessions measured, by case, metric and core type, as the statistics take them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from server import stats
from server.detection.noise.effects import LEAST_EFFECT, min_effects
from server.lab.models import Boot, CoreType, Session, Trial
from server.results.models import Case, Measurement, Metric

_JUDGED = (Metric.Better.LOWER, Metric.Better.HIGHER)
_NO_VALUES: tuple[float, ...] = ()


class CellKey(NamedTuple):
    """Ids of what makes a cell."""

    session: int
    case: int
    metric: int
    core_type: int


@dataclass(frozen=True)
class MeasuredCell:
    """One cell with the rows that it is about."""

    session: Session
    case: Case
    metric: Metric
    core_type: CoreType
    values: stats.Cell

    @property
    def key(self) -> CellKey:
        return CellKey(self.session.pk, self.case.pk, self.metric.pk, self.core_type.pk)


@dataclass(frozen=True)
class _Boots:
    """The ended boots of one session by arm, in the order of their positions."""

    ids: Mapping[str, list[int]]
    positions: Mapping[str, list[int]]


def read_cells(sessions: Sequence[Session]) -> list[MeasuredCell]:
    """All cells that these sessions have values of, by session, case, metric and core type; eight queries at most.

    Each cell has one entry for each boot that ended, in the order of their positions whenever their results came in;
    a boot that gave no values of the cell has an empty one. Metrics that only explain make no cells.
    """
    boots = _boots(sessions)
    values: dict[CellKey, dict[int, Sequence[float]]] = defaultdict(dict)
    session_of = {boot: session for session, of in boots.items() for ids in of.ids.values() for boot in ids}
    for boot, case_id, metric_id, core_type_id, measured, warmup in _measurements(session_of):
        values[CellKey(session_of[boot], case_id, metric_id, core_type_id)][boot] = measured[warmup:]
    by_id = {session.pk: session for session in sessions}
    cases = Case.objects.select_related("benchmark").in_bulk({key.case for key in values})
    metrics = Metric.objects.in_bulk({key.metric for key in values})
    core_types = CoreType.objects.in_bulk({key.core_type for key in values})
    effects = _effects(sessions)
    cells = []
    for key, found in values.items():
        session, case, metric = by_id[key.session], cases[key.case], metrics[key.metric]
        name = f"session {session.pk}, {case}, {metric.name}"
        cell = _values(found, boots[key.session], metric, name, effects.get(key))
        cells.append(MeasuredCell(session, case, metric, core_types[key.core_type], cell))
    return sorted(cells, key=_order)


def _order(cell: MeasuredCell) -> tuple[int, str, int, str, str]:
    return cell.session.pk, cell.case.name, cell.case.pk, cell.metric.name, cell.core_type.name


def _boots(sessions: Sequence[Session]) -> dict[int, _Boots]:
    ended = Boot.objects.filter(session__in=sessions, state__in=[Boot.State.MEASURED, Boot.State.FAILED])
    found: dict[int, _Boots] = {}
    for pk, session, arm, position in ended.order_by("session_id", "position").values_list(
        "id", "session_id", "arm", "position"
    ):
        of = found.setdefault(
            session, _Boots({arm: [] for arm in Boot.Arm.values}, {arm: [] for arm in Boot.Arm.values})
        )
        of.ids[arm].append(pk)
        of.positions[arm].append(position)
    return found


def _measurements(boots: Iterable[int]) -> Iterable[tuple[int, int, int, int, list[float], int]]:
    judged = Measurement.objects.filter(
        boot__in=list(boots), boot__state=Boot.State.MEASURED, metric__better__in=_JUDGED
    )
    columns = ("boot_id", "case_id", "metric_id", "core_type_id", "values", "warmup")
    return judged.order_by().values_list(*columns).iterator(chunk_size=5000)


def _values(
    found: Mapping[int, Sequence[float]], boots: _Boots, metric: Metric, name: str, min_effect: float | None
) -> stats.Cell:
    better: Literal["lower", "higher"] = "lower" if metric.better == metric.Better.LOWER else "higher"
    base, patched = (
        [found.get(boot, _NO_VALUES) for boot in boots.ids[arm]] for arm in (Boot.Arm.BASE, Boot.Arm.PATCHED)
    )
    return stats.Cell(
        base=base,
        patched=patched,
        better=better,
        min_effect=LEAST_EFFECT if min_effect is None else min_effect,
        resolution=metric.resolution,
        base_positions=boots.positions[Boot.Arm.BASE],
        patched_positions=boots.positions[Boot.Arm.PATCHED],
        exact=metric.exact,
        name=name,
    )


def _effects(sessions: Sequence[Session]) -> "_Effects":
    """Sessions of before there were trials were judged by the same minimum effect everywhere, and still are."""
    trials = Trial.objects.in_bulk({session.trial_id for session in sessions if session.trial_id is not None})
    set_by_hand = {
        session.pk: effect
        for session in sessions
        if session.trial_id is not None and (effect := trials[session.trial_id].min_effect) is not None
    }
    others = [session for session in sessions if session.trial_id is not None and session.pk not in set_by_hand]
    return _Effects(set_by_hand, min_effects(others) if others else {})


@dataclass(frozen=True)
class _Effects:
    """Smallest changes worth a verdict: of whole sessions, and of cells by what their equal kernels show."""

    sessions: Mapping[int, float]
    cells: Mapping[tuple[int, int, int, int], float]

    def get(self, key: CellKey) -> float | None:
        return self.sessions.get(key.session, self.cells.get(key))

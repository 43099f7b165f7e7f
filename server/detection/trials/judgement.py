"""From what boots measured to comparisons: cells, each judged by the looks of its session's design, then all
together as one family.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any, Literal, NamedTuple, cast

from django.db import models

from server import stats
from server.core.rows.together import objects_together
from server.detection.models import Comparison, Verdict
from server.detection.models.finding import CHANGES
from server.detection.trials.effects import LEAST_EFFECT, min_effects
from server.detection.trials.scope import doubts_about
from server.lab.models import Boot, CoreType, Session
from server.results.models import Benchmark, Case, Measurement, Metric
from server.stats.comparison.decisions import CellProgress, Design, judge_cells, with_data

# Agents write these texts; a finding keeps them, and pages, mails and answers show them.
_LONGEST_TEXT, _MOST_TEXTS = 300, 4


@dataclass(frozen=True)
class CaseNote:
    """Why one case gave nothing in some boots of a session."""

    session_id: int
    benchmark: str
    case: str
    text: str


def case_notes(sessions: Sequence[Session]) -> list[CaseNote]:
    """One note for each session and case that gave nothing in some boot, from what the agent wrote down."""
    texts: dict[tuple[int, str, str], dict[str, None]] = defaultdict(dict)
    boots = Boot.objects.filter(session__in=sessions).exclude(notes=[])
    for session_id, arm, notes in boots.order_by("session_id", "position").values_list("session_id", "arm", "notes"):
        for note in notes:
            key = (session_id, str(note.get("benchmark", "")), str(note.get("case", "")))
            text = str(note.get("reason") or note.get("outcome") or "gave no values")
            texts[key][f"{arm} kernel: {text[:_LONGEST_TEXT]}"] = None
    return [CaseNote(*key, text=_joined(list(found))) for key, found in texts.items()]


def _joined(texts: Sequence[str]) -> str:
    more = [f"{len(texts) - _MOST_TEXTS} more reasons"] if len(texts) > _MOST_TEXTS else []
    return "; ".join([*texts[:_MOST_TEXTS], *more])


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
class BootsOfArms:
    """Boots by arm, in the order of their positions; those of one session that ended."""

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
    for boot, case_id, metric_id, core_type_id, measured, warmup in measurements_of(session_of):
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
        cell = values_of(found, boots[key.session], metric, name, effects.get(key))
        cells.append(MeasuredCell(session, case, metric, core_types[key.core_type], cell))
    return sorted(cells, key=_order)


def _order(cell: MeasuredCell) -> tuple[int, str, int, str, str]:
    return cell.session.pk, cell.case.name, cell.case.pk, cell.metric.name, cell.core_type.name


def _boots(sessions: Sequence[Session]) -> dict[int, BootsOfArms]:
    ended = Boot.objects.filter(session__in=sessions, state__in=[Boot.State.MEASURED, Boot.State.FAILED])
    found: dict[int, BootsOfArms] = {}
    for pk, session, arm, position in ended.order_by("session_id", "position").values_list(
        "id", "session_id", "arm", "position"
    ):
        of = found.setdefault(
            session, BootsOfArms({arm: [] for arm in Boot.Arm.values}, {arm: [] for arm in Boot.Arm.values})
        )
        of.ids[arm].append(pk)
        of.positions[arm].append(position)
    return found


def measurements_of(boots: Iterable[int]) -> Iterable[tuple[int, int, int, int, list[float], int]]:
    judged = Measurement.objects.filter(
        # Of samples that have left a median alone is here, which is no evidence.
        boot__in=list(boots),
        boot__state=Boot.State.MEASURED,
        metric__better__in=_JUDGED,
        summarised=False,
    )
    columns = ("boot_id", "case_id", "metric_id", "core_type_id", "values", "warmup")
    return judged.order_by().values_list(*columns).iterator(chunk_size=5000)


def values_of(
    found: Mapping[int, Sequence[float]], boots: BootsOfArms, metric: Metric, name: str, min_effect: float | None
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
    rows = Session.objects.filter(pk__in=[session.pk for session in sessions]).order_by()
    told = rows.values_list("pk", "trial__min_effect")
    set_by_hand = {pk: effect for pk, effect in told if effect is not None}
    others = [session for session in sessions if session.pk not in set_by_hand]
    return _Effects(set_by_hand, min_effects(others) if others else {})


@dataclass(frozen=True)
class _Effects:
    """Smallest changes worth a verdict: of whole sessions, and of cells by what their equal kernels show."""

    sessions: Mapping[int, float]
    cells: Mapping[tuple[int, int, int, int], float]

    def get(self, key: CellKey) -> float | None:
        return self.sessions.get(key.session, self.cells.get(key))


# A spread needs two boots.
_FEWEST_BOOTS = 2


def design_of(session: Session) -> Design:
    """When the boots of a session of a trial are looked at."""
    return Design(looks=tuple(look for look in session.looks if look >= _FEWEST_BOOTS) or (_FEWEST_BOOTS,))


def is_fixed(session: Session) -> bool:
    """Judged once, at a number of boots that was fixed before: no look can ask for more."""
    return len(design_of(session).looks) == 1


def ended(session: Session) -> bool:
    """Whether its last look takes all that is left of alpha: nothing that was measured decided that it is the last."""
    return session.cut_short or is_fixed(session)


def fresh_comparisons(sessions: Sequence[Session]) -> list[Comparison]:
    """Unsaved comparisons of all cells of these sessions; those of a session are one family.

    What one machine says, or makes up, changes nothing of what is claimed on another. What a comparison shows (boots,
    means, ratio, interval) is what the look saw that decided it, else the last look.
    """
    cells = read_cells(sessions)
    judged = in_families(cells, _compared(cells), number=len(sessions))
    doubts = doubts_about(sessions)
    notes = {(note.session_id, note.benchmark, note.case): note.text for note in case_notes(sessions)}
    rows = []
    for cell, result in zip(cells, judged, strict=True):
        row = row_of(cell, result)
        note = notes.get((row.session_id, cell.case.benchmark.name, cell.case.name))
        if note and row.verdict == Verdict.INCONCLUSIVE:
            row.reason = f"{row.reason}; {note}"
        doubt = doubts.get(row.session_id)
        if doubt is not None and (row.verdict in CHANGES or (doubt.whole and row.verdict == Verdict.UNCHANGED)):
            row.verdict, row.reason, row.reason_code = Verdict.INCONCLUSIVE, str(doubt.reason), doubt.reason.code
        rows.append(row)
    return rows


def in_families(
    cells: Sequence[MeasuredCell], compared: Sequence[stats.CellComparison], *, number: int
) -> list[stats.CellComparison]:
    """Adjusted within each of so many sessions; `read_cells` gives the cells of a session one after the other."""
    pairs = zip(cells, compared, strict=True)
    families = [[one for _, one in of] for _, of in groupby(pairs, key=lambda pair: pair[0].session.pk)]
    return [one for family in families for one in stats.judge_family(family, families=number)]


def _compared(cells: Sequence[MeasuredCell]) -> list[stats.CellComparison]:
    """One comparison for each cell, in their order; cells of one design are worked off together."""
    groups: dict[tuple[Design, bool], list[int]] = defaultdict(list)
    for index, cell in enumerate(cells):
        groups[design_of(cell.session), ended(cell.session)].append(index)
    found: dict[int, stats.CellComparison] = {}
    for (design, is_ended), places in groups.items():
        values = [cells[place].values for place in places]
        progress = judge_cells(values, design, ended=is_ended)
        found.update(zip(places, map(seen, values, progress), strict=True))
    return [found[index] for index in range(len(cells))]


def seen(values: stats.Cell, progress: CellProgress) -> stats.CellComparison:
    """The comparison of a cell's design; one that was never looked at shows its means, and no evidence."""
    if progress.comparison is not None:
        return _still_seen(progress, progress.comparison)
    plain = stats.compare([with_data(values)])[0]
    return stats.CellComparison(
        verdict=stats.StatisticalVerdict.INCONCLUSIVE,
        reason=plain.reason if plain.p_value is None else progress.reason,
        reason_code=plain.reason_code if plain.p_value is None else progress.reason_code,
        flags=plain.flags,
        base=plain.base,
        patched=plain.patched,
        ratio=plain.ratio,
    )


def _still_seen(progress: CellProgress, found: stats.CellComparison) -> stats.CellComparison:
    """A change is claimed only if all boots show it.

    A cell that changed at an early look may have got more boots for the sake of others. Where boots alternate between
    two modes, the first few of the kernels can by chance lie in one mode each, which looks certain; more boots tell.
    """
    decided, last = progress.decided_at, progress.looks[-1]
    if decided is None or decided == last or found.verdict.value not in CHANGES:
        return found
    reason = f"{found.verdict} at {decided.base} boots a side, no longer at {last.base}: {last.comparison.reason}"
    judged = last.comparison._replace(verdict=stats.StatisticalVerdict.INCONCLUSIVE, p_value=progress.p_value)
    return judged._replace(reason=reason, reason_code=stats.NoVerdict.NOT_SEEN_AT_LAST)


_ARMS = ("base", "patched")
# Where statistics tell a figure, by its column: each has its own name there, those of an arm begin with the arm's.
_TOLD = {f"{arm}_{name}": attrgetter(f"{arm}.{name}") for arm in _ARMS for name in stats.Arm._fields} | {
    name: attrgetter(name) for name in stats.CellComparison._fields if name not in _ARMS
}


@dataclass(frozen=True)
class CellParts:
    """What cells are of, each by its id."""

    cases: Mapping[int, Case]
    metrics: Mapping[int, Metric]
    core_types: Mapping[int, CoreType]


def parts_of_cells(cases: Collection[int], metrics: Collection[int], core_types: Collection[int]) -> CellParts:
    """Cases know their benchmark. One query."""
    rows = Case.objects.filter(pk__in=cases).order_by()
    of_cases, benchmarks, of_metrics, of_core_types = objects_together(
        rows,
        Benchmark.objects.filter(pk__in=rows.values("benchmark")).order_by(),
        Metric.objects.filter(pk__in=metrics).order_by(),
        CoreType.objects.filter(pk__in=core_types).order_by(),
    )
    by_id = {one.pk: one for one in benchmarks}
    for case in of_cases:
        case.benchmark = by_id[case.benchmark_id]
    found = ({one.pk: one for one in own} for own in (of_cases, of_metrics, of_core_types))
    return CellParts(*found)


_KEEP = [
    cast("models.ForeignKey[Any, Any]", Comparison._meta.get_field(name)).set_cached_value
    for name in ("session", "case", "metric", "core_type")
]


def with_parts(of: Iterable[Comparison], sessions: Iterable[Session]) -> list[Comparison]:
    """Comparisons of these sessions, each with its session and what it is of. One query.

    Rows of a large finding have a few dozen of those together: joined, each would be made anew for each row.
    """
    rows, by_id = list(of), {session.pk: session for session in sessions}
    ids = ({row.case_id for row in rows}, {row.metric_id for row in rows}, {row.core_type_id for row in rows})
    parts = parts_of_cells(*ids)
    of_session, of_case, of_metric, of_core_type = _KEEP
    for row in rows:
        of_session(row, by_id[row.session_id])
        of_case(row, parts.cases[row.case_id])
        of_metric(row, parts.metrics[row.metric_id])
        of_core_type(row, parts.core_types[row.core_type_id])
    return rows


_COLUMNS = [field.attname for field in Comparison._meta.concrete_fields]
_OF_CELL = ("session_id", "case_id", "metric_id", "core_type_id")
# What the database gives it.
_UNSAVED = {"id": None, "computed_at": None}


def row_of(of: MeasuredCell, result: stats.CellComparison) -> Comparison:
    """An unsaved row."""
    figures = {name: told(result) for name, told in _TOLD.items()} | _UNSAVED
    figures |= dict(zip(_OF_CELL, of.key, strict=True))
    figures["min_effect"] = of.values.min_effect
    figures["verdict"] = Verdict(result.verdict.value)
    figures["flags"] = [flag.value for flag in result.flags]
    # In the order of the columns: by their names it takes five times as long, and an answer has thousands.
    row = Comparison(*[figures[name] for name in _COLUMNS])
    for keep, part in zip(_KEEP, (of.session, of.case, of.metric, of.core_type), strict=True):
        keep(row, part)
    return row


# Where boots alternate between two modes, by chance all boots of one kernel lie in the one and all of the other in the
# other: at 4 boots a side in one session of 128, at 6 in one of 2048. No interval and no p-value knows; more boots do.
_TELLING_BOOTS = 6


def is_settled(progress: CellProgress) -> bool:
    """Whether more boots may be spared: it claims no change, or one that the last look shows, of boots enough.

    The last look that there can be has the word in any case.
    """
    if progress.verdict.value not in CHANGES or progress.looks[-1].level.fraction >= 1:
        return True
    last = progress.looks[-1]
    return progress.decided_at == last and min(last.base, last.patched) >= _TELLING_BOOTS


def boots_to_next_look(cells: Sequence[MeasuredCell]) -> tuple[int, int]:
    """Boots of the base and of the patched kernel until each of these cells has its next planned look."""
    wanted = [_missing(cell) for cell in cells]
    return max((base for base, _ in wanted), default=0), max((patched for _, patched in wanted), default=0)


def _missing(cell: MeasuredCell) -> tuple[int, int]:
    ready, design = with_data(cell.values), design_of(cell.session)
    base, patched = len(ready.base), len(ready.patched)
    look = next((look for look in design.looks if look > min(base, patched)), design.budget)
    return max(0, look - base), max(0, look - patched)

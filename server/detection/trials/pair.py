"""Two kernels side by side from what is stored, whether or not one session measured both."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import Count, Exists, OuterRef, Q, Subquery
from django.db.models.functions import Coalesce

from server import stats
from server.detection.models import Comparison, Verdict
from server.detection.models.finding import CHANGES
from server.detection.trials.effects import min_effects
from server.detection.trials.judgement import (
    BootsOfArms,
    CellKey,
    MeasuredCell,
    in_families,
    measurements_of,
    parts_of_cells,
    row_of,
    values_of,
)
from server.detection.trials.scope import Doubt, doubts_beside, that_have_told
from server.lab.models import Boot, Machine, Session

# Of one machine, half of them for each kernel, newest first: old ones tell of a machine that may have changed since.
MOST_SESSIONS = 20
APART = (
    "The two kernels were measured in different sessions: what else changed between them (the machine, the compiler, "
    "the benchmark) is part of the difference, so nothing is claimed."
)


@dataclass(frozen=True)
class PairOnMachine:
    """What one machine says of two kernels; `comparisons` are not stored. `sessions` are those whose boots were used.

    `shares_session`: boots of both kernels alternate in one session. Where they do not, `statement` says what that
    means.
    """

    session: Session
    sessions: tuple[int, ...]
    shares_session: bool
    statement: str
    comparisons: list[Comparison] = field(default_factory=list)


@dataclass
class _Boots:
    """Boots of one machine to be compared, by arm, and the sessions that they are of, the newest first."""

    sessions: list[Session]
    arms: BootsOfArms
    shared: bool


def compare_kernels(
    base: Collection[int], patched: Collection[int], *, machines: Collection[str] = ()
) -> list[PairOnMachine]:
    """For each machine that measured both builds its comparisons of all cells; those of a machine are one family.

    On a machine where sessions measured both, the one that judged most cells is compared, of several the newest, all
    its boots at once: where a trial ended early, the service's own comparison pays for its looks, and this one does
    not. Elsewhere all boots of up to MOST_SESSIONS sessions are. Ten queries for any number of machines, and those of
    their noise.
    """
    found = _boots_by_machine(set(base), set(patched), machines)
    cells = _cells(found)
    compared = stats.compare([cell.values for cell in cells])
    doubts = _doubts(found)
    rows: dict[int, list[Comparison]] = defaultdict(list)
    for cell, result in zip(cells, in_families(cells, compared, number=len(found)), strict=True):
        row = row_of(cell, result)
        doubt = doubts.get(cell.session.machine_id)
        if doubt is not None and (row.verdict in CHANGES or (doubt.whole and row.verdict == Verdict.UNCHANGED)):
            row.verdict, row.reason, row.reason_code = Verdict.INCONCLUSIVE, str(doubt.reason), doubt.reason.code
        elif not found[cell.session.machine_id].shared:
            # Nothing tells what lies between sessions: the day, the compiler, the benchmark's version.
            row.verdict, row.reason, row.reason_code = Verdict.INCONCLUSIVE, APART, stats.NoVerdict.UNDECIDED
        rows[cell.session.machine_id].append(row)
    return [
        PairOnMachine(
            session=boots.sessions[0],
            sessions=tuple(session.pk for session in boots.sessions),
            shares_session=boots.shared,
            statement="" if boots.shared else APART,
            comparisons=rows[machine],
        )
        for machine, boots in found.items()
    ]


def _boots_by_machine(base: set[int], patched: set[int], machines: Collection[str]) -> dict[int, _Boots]:
    chosen = _chosen_sessions(base, patched, machines)
    rows = Session.objects.select_related("machine__uarch").order_by("machine__name", "-pk")
    by_id = {one.pk: one for one in rows.filter(pk__in=chosen)}
    found: dict[int, _Boots] = {}
    for session in by_id.values():
        of = found.setdefault(session.machine_id, _Boots([], _no_boots(), shared=chosen[session.pk]))
        of.sessions.append(session)
    boots = Boot.objects.filter(session__in=by_id, state=Boot.State.MEASURED).order_by("session_id", "position")
    for pk, session_id, arm, position in boots.values_list("pk", "session_id", "arm", "position"):
        session = by_id[session_id]
        build = session.base_build_id if arm == Boot.Arm.BASE else session.patched_build_id
        side = Boot.Arm.BASE if build in base else Boot.Arm.PATCHED if build in patched else None
        if side is not None:
            of = found[session.machine_id]
            of.arms.ids[side].append(pk)
            # Of several sessions ids tell the order in which boots ran: that the machine may have drifted in between
            # widens the interval.
            of.arms.positions[side].append(position if of.shared else pk)
    return found


def _no_boots() -> BootsOfArms:
    return BootsOfArms({arm: [] for arm in Boot.Arm.values}, {arm: [] for arm in Boot.Arm.values})


_SIDES = ((Boot.Arm.BASE, "base_build"), (Boot.Arm.PATCHED, "patched_build"))


def _chosen_sessions(base: set[int], patched: set[int], machines: Collection[str]) -> dict[int, bool]:
    """Of each machine that measured both kernels the session that judged most cells of them, or else the newest ones
    with either; and whether it did.

    A bisection asks for the same two kernels once more, and for one cell: the newest alone would show that one.
    Of a kernel that thousands of sessions measured the database walks each machine's sessions from the newest on, and
    stops at the last that is taken.
    """
    own = Session.objects.filter(that_have_told(), machine=OuterRef("pk")).order_by("-pk").values("pk")

    def measured(arm: str) -> Exists:
        return Exists(Boot.objects.filter(session=OuterRef("pk"), arm=arm, state=Boot.State.MEASURED).order_by())

    both = Q(base_build__in=base, patched_build__in=patched) | Q(base_build__in=patched, patched_build__in=base)
    judged = Comparison.objects.filter(session=OuterRef("pk")).order_by().values("session")
    cells = Coalesce(Subquery(judged.annotate(cells=Count("pk")).values("cells")), 0)
    shared = own.filter(both, measured(Boot.Arm.BASE), measured(Boot.Arm.PATCHED)).order_by(cells.desc(), "-pk")[:1]
    rows = Machine.objects.filter(name__in=machines) if machines else Machine.objects.all()
    found: dict[int, bool] = {}
    left = []
    for machine, session in rows.order_by().values_list("pk", Subquery(shared)):
        if session is None:
            left.append(machine)
        else:
            found[session] = True
    newest = [
        ArraySubquery(own.filter(measured(arm), **{f"{build}__in": builds})[: MOST_SESSIONS // 2])
        for builds in (base, patched)
        for arm, build in _SIDES
    ]
    rows_left: Any = Machine.objects.filter(pk__in=left).order_by().values_list(*newest)
    for base_as_base, base_as_patched, patched_as_base, patched_as_patched in rows_left:
        sides = [{*base_as_base, *base_as_patched}, {*patched_as_base, *patched_as_patched}]
        if all(sides):
            found |= {pk: False for side in sides for pk in sorted(side)[-MOST_SESSIONS // 2 :]}
    return found


def _cells(found: Mapping[int, _Boots]) -> list[MeasuredCell]:
    """The cells of all machines, those of a machine one after the other."""
    machine_of = {boot: machine for machine, of in found.items() for ids in of.arms.ids.values() for boot in ids}
    values: dict[CellKey, dict[int, Sequence[float]]] = defaultdict(dict)
    for boot, case, metric, core_type, measured, warmup in measurements_of(machine_of):
        session = found[machine_of[boot]].sessions[0]
        values[CellKey(session.pk, case, metric, core_type)][boot] = measured[warmup:]
    ids = ({key.case for key in values}, {key.metric for key in values}, {key.core_type for key in values})
    parts = parts_of_cells(*ids)
    newest = {of.sessions[0].pk: of for of in found.values()}
    effects = min_effects([of.sessions[0] for of in found.values()]) if found else {}
    cells = [
        MeasuredCell(
            of.sessions[0],
            parts.cases[key.case],
            parts.metrics[key.metric],
            parts.core_types[key.core_type],
            values_of(boots, of.arms, parts.metrics[key.metric], str(parts.cases[key.case]), effects.get(key)),
        )
        for key, boots in values.items()
        if (of := newest[key.session])
    ]
    order = {session: place for place, session in enumerate(newest)}
    return sorted(
        cells,
        key=lambda cell: (order[cell.session.pk], cell.case.name, cell.case.pk, cell.metric.name, cell.core_type.name),
    )


def _doubts(found: Mapping[int, _Boots]) -> dict[int, Doubt]:
    """By machine."""
    shared = [of.sessions[0] for of in found.values() if of.shared]
    apart = {
        machine: [boot for ids in of.arms.ids.values() for boot in ids]
        for machine, of in found.items()
        if not of.shared
    }
    about, beside = doubts_beside(shared, apart)
    return beside | {session.machine_id: about[session.pk] for session in shared if session.pk in about}

"""What pages, the API and mails show of a finding, and what somebody needs to run one of its cases again."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.db.models import Case, Count, QuerySet, Value, When, Window
from django.db.models.aggregates import Max, Min

from server.builds.models import Build
from server.detection.findings.vector import heard
from server.detection.models import Comparison, Finding, FindingVerdict, Verdict
from server.detection.models.finding import COVERAGE
from server.detection.trials.judgement import with_parts
from server.detection.trials.scope import is_same_code
from server.lab.hosts.probes import first_facts
from server.lab.models import Boot, Session
from server.results.models import Case as ModelsCase
from server.results.models import Measurement, Metric
from server.sources.models import Revision, Series


@dataclass(frozen=True)
class Component:
    """The verdict for one microarchitecture; `cell` is the one that moved most there, if any was measured."""

    uarch: str
    title: str
    verdict: str
    reason: str
    mde: float | None
    mde_half: float | None
    told: int
    untold: int
    blind: int
    missed: float | None
    cell: Comparison | None


@dataclass(frozen=True)
class MachineColumn:
    session_id: int
    machine: str
    uarch: str
    clock: str
    virtual: bool
    state: str
    reason: str
    same_code: bool


@dataclass(frozen=True)
class CaseRow:
    """One (case, metric, core type), with a cell or None for each machine of the table."""

    benchmark: str
    case: str
    title: str
    metric: str
    unit: str
    better: str
    core_type: str
    cells: tuple[Comparison | None, ...]
    parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def moved(self) -> bool:
        return any(cell is not None and cell.verdict in (Verdict.REGRESSED, Verdict.IMPROVED) for cell in self.cells)


@dataclass(frozen=True)
class ComparisonTable:
    machines: tuple[MachineColumn, ...]
    rows: tuple[CaseRow, ...]
    # How many rows there are beside these.
    unshown: int = 0


# What one page or answer has at most: up to a millisecond of a processor each, and a machine's owner decides how many.
MOST_CELLS = 240
_LEAST_ROWS = 10
_RowKey = tuple[int, int, str]
_BY_NAME = ("case__benchmark__name", "case__name", "metric__name", "core_type__name")
_RANK = Case(
    When(verdict__in=(Verdict.REGRESSED, Verdict.IMPROVED), then=Value(0)),
    When(verdict=Verdict.INCONCLUSIVE, then=Value(1)),
    default=Value(2),
)
_CELL_NAMES = ("session__machine__uarch", "case__benchmark", "metric", "core_type")


def finding_vector(finding: Finding) -> tuple[Component, ...]:
    """The finding's verdicts by microarchitecture, in the order of their names. One query."""
    cell = [f"comparison__{name}" for name in _CELL_NAMES]
    rows = FindingVerdict.objects.filter(finding=finding).select_related("uarch", *cell).order_by("uarch__name")
    return tuple(
        Component(
            uarch=row.uarch.name,
            title=row.uarch.title,
            verdict=row.verdict,
            reason=row.reason,
            mde=row.mde,
            mde_half=row.mde_half,
            told=row.told,
            untold=row.untold,
            blind=row.blind,
            missed=row.missed,
            cell=row.comparison,
        )
        for row in rows
    )


_OF_ROW = {
    "uarch": "uarch__name",
    "title": "uarch__title",
    "verdict": "verdict",
    "reason": "reason",
    **{name: name for name in COVERAGE},
    "comparison_id": "comparison",
    "ratio": "comparison__ratio",
    "low": "comparison__ratio_low",
    "high": "comparison__ratio_high",
    "machine": "comparison__session__machine__name",
    "benchmark": "comparison__case__benchmark__name",
    "case": "comparison__case__name",
    "metric": "comparison__metric__name",
    "core_type": "comparison__core_type__name",
}


_AT_ONCE = 125


def finding_vectors(findings: Sequence[int]) -> dict[int, list[dict[str, Any]]]:
    """The same for many, by their ids, as plain values: names and figures of its cell stand in each.

    One query for _AT_ONCE of them: of more, PostgreSQL reads all comparisons there are instead of asking the index.

    A page of hundreds of findings has thousands of components; objects of eight tables for each took most of its time.
    """
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for begin in range(0, len(findings), _AT_ONCE):
        rows = FindingVerdict.objects.filter(finding__in=findings[begin : begin + _AT_ONCE]).order_by("uarch__name")
        for finding, *values in rows.values_list("finding", *_OF_ROW.values()):
            found[finding].append(dict(zip(_OF_ROW, values, strict=True)))
    return found


def sessions_of(finding: Finding) -> QuerySet[Session]:
    """The sessions that a finding speaks about; of a change that is only suspected there are none."""
    return Session.objects.none() if finding.trial_id is None else Session.objects.filter(trial=finding.trial_id)


def comparison_table(of: QuerySet[Session], checks: Sequence[Mapping[str, Any]] = ()) -> ComparisonTable:
    """Judged cells of these sessions: rows are cases, columns are their machines. Four queries, or five.

    With the `checks` of a finding the cells are as it hears them: what one that failed took away is inconclusive. Of
    very many rows it has those where something moved, then those that stayed open, then others by name.
    """
    sessions = list(of.select_related("machine__uarch").order_by("machine__uarch__name", "machine__name"))
    comparisons = Comparison.objects.filter(session__in=sessions)
    most = max(_LEAST_ROWS, MOST_CELLS // max(1, len(sessions)))
    chosen, total = _first_rows(comparisons, most)
    table = table_of(sessions, heard(with_parts(chosen.order_by(*_BY_NAME), sessions), checks))
    return replace(table, unshown=total - len(table.rows))


def table_of(sessions: Sequence[Session], comparisons: Iterable[Comparison]) -> ComparisonTable:
    """The same of comparisons that are at hand, stored or not; their rows in the order given."""
    rows: dict[_RowKey, dict[int, Comparison]] = {}
    for comparison in comparisons:
        key = (comparison.case_id, comparison.metric_id, comparison.core_type.name)
        rows.setdefault(key, {})[comparison.session_id] = comparison
    return ComparisonTable(
        machines=tuple(_column(session) for session in sessions),
        rows=tuple(_row(cells, sessions) for cells in rows.values()),
    )


def _first_rows(comparisons: QuerySet[Comparison], most: int) -> tuple[QuerySet[Comparison], int]:
    """The cells of the rows that come first, and how many rows there are."""
    keys = comparisons.order_by().values_list("case", "metric", "core_type__name").annotate(rank=Min(_RANK))
    first = list(keys.annotate(total=Window(Count("*"))).order_by("rank", *_BY_NAME)[:most])
    total = first[0][-1] if first else 0
    if total <= most:
        return comparisons, total
    wanted = {(case, metric, name) for case, metric, name, *_ in first}
    near = comparisons.filter(case__in={key[0] for key in wanted}, metric__in={key[1] for key in wanted}).order_by()
    cells = near.values_list("pk", "case", "metric", "core_type__name")
    return comparisons.filter(pk__in=[pk for pk, *key in cells if tuple(key) in wanted]), total


def session_cells(session_id: int) -> tuple[tuple[Comparison, ...], int]:
    """Judged cells of one session, those that moved first, then by case; and how many more there are. Four queries."""
    comparisons = Comparison.objects.filter(session=session_id)
    of = Session.objects.select_related("machine__uarch").filter(pk=session_id)
    rows = with_parts(comparisons.order_by(_RANK, *_BY_NAME)[:MOST_CELLS], of)
    more = comparisons.count() - len(rows) if len(rows) == MOST_CELLS else 0
    return tuple(rows), more


def cells_by_id(session_id: int) -> QuerySet[Comparison]:
    """All judged cells of one session, for who reads them page by page."""
    return Comparison.objects.filter(session=session_id).select_related(*_CELL_NAMES)


def _column(session: Session) -> MachineColumn:
    machine = session.machine
    return MachineColumn(
        session_id=session.pk,
        machine=machine.name,
        uarch=machine.uarch.name,
        clock=machine.clock,
        virtual=machine.virtual,
        state=session.state,
        reason=session.reason,
        same_code=is_same_code(session),
    )


def _row(cells: dict[int, Comparison], sessions: Sequence[Session]) -> CaseRow:
    first = next(iter(cells.values()))
    return CaseRow(
        benchmark=first.case.benchmark.name,
        case=first.case.name,
        title=first.case.title,
        metric=first.metric.name,
        unit=first.metric.unit,
        better=first.metric.better,
        core_type=first.core_type.name,
        cells=tuple(cells.get(session.pk) for session in sessions),
        parameters=first.case.parameters,
    )


@dataclass(frozen=True)
class PublishedMachine:
    """A machine that measured the case: its session, the two kernels and what the probe saw in the first boot."""

    name: str
    uarch: str
    virtual: bool
    clock: str
    session: int
    base_build: Build
    patched_build: Build
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def evidence(self) -> bool:
        return not self.virtual


@dataclass(frozen=True)
class PublishedCase:
    """`version` is that of the benchmark which measured, not of today's.

    Of a change in a branch there is a `finding` and no series; base and patched are the heads before and after it.
    """

    series: Series | None
    finding: Finding | None
    case: ModelsCase
    version: str
    metrics: tuple[Metric, ...]
    machines: tuple[PublishedMachine, ...]
    cells: tuple[Comparison, ...]

    @property
    def subject(self) -> str:
        return self.series.subject if self.series else self.finding.headline if self.finding else ""

    @property
    def message_id(self) -> str:
        return self.series.first_message_id if self.series else ""

    @property
    def base(self) -> Revision | None:
        return self.series.base if self.series else self.finding.before if self.finding else None

    @property
    def patched(self) -> Revision | None:
        return self.series.head if self.series else self.finding.after if self.finding else None


_BUILDS = ("base_build", "patched_build")
_OF_SESSION = ("machine__uarch", *(f"{build}__{part}" for build in _BUILDS for part in ("config", "toolchain")))
_BY_MACHINE = ("session__machine__uarch__name", "session__machine__name", "core_type__name", "metric__name")


def published_case(of: Series | Finding, *, benchmark: str, case: str) -> PublishedCase | None:
    """The case with all its judged cells in this series, or finding; None if it was not judged there. Seven queries."""
    series, finding = (of, None) if isinstance(of, Series) else (of.series, of)
    measured = Session.objects.filter(series=series) if finding is None else sessions_of(finding)
    named = ModelsCase.objects.filter(benchmark__name=benchmark, name=case).values_list("pk", flat=True).first()
    every = {session.pk: session for session in measured.select_related(*_OF_SESSION)}
    cells = Comparison.objects.filter(session__in=every, case=named).order_by(*_BY_MACHINE)
    rows = with_parts(cells, every.values()) if every and named is not None else []
    if not rows:
        return None
    sessions = {row.session_id: row.session for row in rows}
    metrics = {row.metric_id: row.metric for row in rows}
    return PublishedCase(
        series=series,
        finding=finding,
        case=rows[0].case,
        version=_version(list(sessions), rows[0].case),
        metrics=tuple(sorted(metrics.values(), key=lambda metric: metric.name)),
        machines=_machines(list(sessions.values())),
        cells=tuple(rows),
    )


def _version(sessions: Sequence[int], case: ModelsCase) -> str:
    """Of several, the one that was stored last."""
    # By ids of boots, the index of the largest table finds their rows, and no boot of others is read.
    boots = list(Boot.objects.filter(session__in=sessions).order_by().values_list("pk", flat=True))
    stored = Measurement.objects.filter(boot__in=boots, case=case)
    last = stored.order_by().values_list("version__hash").annotate(last=Max("pk"))
    return str(max(last, key=lambda one: one[1], default=(case.benchmark.version,))[0])


def _machines(sessions: Sequence[Session]) -> tuple[PublishedMachine, ...]:
    boots = Boot.objects.filter(session__in=sessions, state=Boot.State.MEASURED)
    first = first_facts(boots)
    return tuple(_machine(session, first.get(session.pk, {})) for session in sessions)


def _machine(session: Session, facts: Mapping[str, Any]) -> PublishedMachine:
    machine = session.machine
    return PublishedMachine(
        name=machine.name,
        uarch=machine.uarch.name,
        virtual=bool(machine.virtual or facts.get("virtual")),
        clock=machine.clock,
        session=session.pk,
        base_build=session.base_build,
        patched_build=session.patched_build,
        facts=facts,
    )

"""Storing what agents measured, each boot once, its values by COPY; which cases there are; reading the values."""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

import structlog
from django.db import connection, transaction
from django.db.models import QuerySet, Sum

from server.lab.attempts.arrivals import CaseOrder
from server.lab.attempts.boots import BootReport, close_boot, finish_session, keep_core_types, note_machine
from server.lab.attempts.ends import keep_for_the_record, wake_judge, was_stopped
from server.lab.attempts.life import is_wanted
from server.lab.hosts.probes import TRUSTED_BOOT
from server.lab.models import LATE, Attempt, Boot, BootState, Machine, Session
from server.lab.work import boots_itself
from server.results.models import Benchmark, BenchmarkVersion, Case, Measurement, Metric

log = structlog.get_logger(__name__)
_VALUES_IN_NOTE = 20
# Beyond what the case asks for. Whoever owns a machine sends what he likes, and every reader of a page pays for it.
_MANY = 10
# Of one boot. The shipped benchmarks together have some hundred cells and a few thousand values.
_MOST_CELLS = 4000
_MOST_VALUES = 100_000
_COLUMNS = 'case_id, metric_id, core_type_id, version_id, warmup, "values"'


@dataclass(frozen=True)
class Values:
    """All values of one (case, metric, core type) of a boot, in the metric's unit, warm-up first."""

    benchmark: str
    version: str
    case: str
    metric: str
    core_type: str
    values: tuple[float, ...]
    warmup: int


@dataclass(frozen=True)
class _Row:
    case_id: int
    metric_id: int
    core_type_id: int
    version_id: int
    warmup: int
    values: tuple[float, ...]


def record_boot(
    *, attempt: Attempt, position: int, report: BootReport, measured: Sequence[Values]
) -> tuple[bool, bool]:
    """Store the result of a boot; returns (stored, whether the agent should go on).

    The first result of a boot wins, whichever attempt of its session brings it: a result that waited in a spool is
    as good as a fresh one. That an emulator's boot failed while its attempt was being stopped is none. Values that
    cannot be stored stand in the boot's notes with the reason.
    """
    assert attempt.session_id is not None
    with transaction.atomic():
        session = (
            Session.objects.select_for_update(of=("self",))
            .select_related("machine__uarch", "base_build", "patched_build", "series", "trial")
            .get(pk=attempt.session_id)
        )
        if _is_the_stops_doing(attempt, session, report):
            keep_for_the_record(attempt, outcome=report.outcome, reason=report.reason)
            return False, False
        # Only a kernel without the patches is trusted to say what the machine is: they could make their own kernel lie.
        # A result that is there already comes late: what it saw is no news of the machine.
        has_result = [BootState.MEASURED, BootState.FAILED]
        news = session.boots.filter(TRUSTED_BOOT, position=position).exclude(state__in=has_result)
        if report.outcome == "infrastructure":
            # Told again and again it is no news, either.
            news = news.filter(state=BootState.RUNNING, started_by=attempt.key)
        is_measured = report.outcome == "measured"
        # One that measured and tells no facts leaves it in doubt what it measured on.
        if (report.facts or is_measured) and news.exists():
            note_machine(machine=session.machine, facts=report.facts, trace=session.trace, measured=is_measured)
            if report.facts and is_measured:
                keep_core_types(machine=session.machine, facts=report.facts)
        rows, notes = _resolve(session, measured)
        if report.outcome == "measured" and not rows:
            report = replace(report, outcome="no-values", reason=report.reason or "no case gave a usable value")
        boot = close_boot(
            session=session,
            position=position,
            report=replace(report, notes=[*report.notes, *notes]),
            key=attempt.key,
        )
        if boot is not None and (boot.state == BootState.MEASURED or boot.outcome == LATE):
            _copy(boot, rows)
        finish_session(session=session)
        if session.state in Session.FINAL:
            wake_judge(session)
    return boot is not None, is_wanted(attempt)


def _is_the_stops_doing(attempt: Attempt, session: Session, report: BootReport) -> bool:
    """Whether a boot failed that somebody may have ended: an emulator is stopped with its agent, a machine is not."""
    if report.outcome in {"measured", "infrastructure"} or boots_itself(session.machine):
        return False
    return was_stopped(attempt)


def _resolve(session: Session, measured: Iterable[Values]) -> tuple[list[_Row], list[dict[str, Any]]]:
    """Names to rows; what is unknown or not a number becomes a note."""
    cases = {
        (case.benchmark.name, case.benchmark.version, case.name): case
        for case in Case.objects.select_related("benchmark")
    }
    metrics = {(metric.benchmark_id, metric.name): metric for metric in Metric.objects.all()}
    core_types = {core_type.name: core_type for core_type in session.machine.core_types.all()}
    begun, versions = _versions_of(session), _Versions()
    rows: list[_Row] = []
    notes, total = [], 0
    for item in measured:
        case = cases.get((item.benchmark, item.version, item.case))
        metric = metrics.get((case.benchmark_id, item.metric)) if case else None
        core_type = core_types.get(item.core_type)
        problem = _problem(item, case=case, metric=metric, known_core_type=core_type is not None)
        if case is not None and begun.get(case.pk, item.version) != item.version:
            problem = f"this session measured the case with version {begun[case.pk]} before: boots would not compare"
        if not problem and (len(rows) >= _MOST_CELLS or total + len(item.values) > _MOST_VALUES):
            problem = f"a boot has at most {_MOST_CELLS} cells and {_MOST_VALUES} values"
        if problem or case is None or metric is None or core_type is None:
            kept = [value if math.isfinite(value) else str(value) for value in item.values[:_VALUES_IN_NOTE]]
            notes.append(
                {
                    "benchmark": item.benchmark,
                    "case": item.case,
                    "outcome": "refused",
                    "reason": problem,
                    "values": kept,
                }
            )
        else:
            total += len(item.values)
            version = versions.of(case.benchmark)
            rows.append(_Row(case.pk, metric.pk, core_type.pk, version, item.warmup, item.values))
    return rows, notes


def _versions_of(session: Session) -> dict[int, str]:
    """The benchmark's version that earlier boots of the session have values of, by case."""
    stored = Measurement.objects.filter(boot__session=session)
    return dict(stored.values_list("case_id", "version__hash").distinct())


class _Versions:
    """Keys of the versions that benchmarks have now, each looked up once."""

    def __init__(self) -> None:
        self._found: dict[int, int] = {}

    def of(self, benchmark: Benchmark) -> int:
        if benchmark.pk not in self._found:
            row, _ = BenchmarkVersion.objects.get_or_create(benchmark=benchmark, hash=benchmark.version)
            self._found[benchmark.pk] = row.pk
        return self._found[benchmark.pk]


def _problem(item: Values, *, case: Case | None, metric: Metric | None, known_core_type: bool) -> str:
    if case is None:
        return f"unknown case {item.benchmark}/{item.case} of version {item.version}"
    if metric is None:
        return f"{item.benchmark} has no metric {item.metric}"
    if not known_core_type:
        return f"the machine has no core type {item.core_type}"
    if not all(math.isfinite(value) for value in item.values):
        return "a value is not a finite number"
    number = len(item.values)
    if number > _MANY * case.runs:
        return f"{number} values, where the case asks for {case.runs}"
    return f"{number} values, of which {item.warmup} are warm-up: nothing is left" if number <= item.warmup else ""


def _copy(boot: Boot, rows: Iterable[_Row]) -> None:
    """COPY into a temporary table, then one INSERT that leaves what is there already alone."""
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TEMPORARY TABLE IF NOT EXISTS incoming (case_id bigint, metric_id bigint, core_type_id bigint,"
            ' version_id bigint, warmup integer, "values" float8[]) ON COMMIT DELETE ROWS'
        )
        cursor.execute("TRUNCATE incoming")
        with cursor.copy(f"COPY incoming ({_COLUMNS}) FROM STDIN") as copy:
            for row in rows:
                copy.write_row(
                    (row.case_id, row.metric_id, row.core_type_id, row.version_id, row.warmup, list(row.values))
                )
        cursor.execute(
            f"INSERT INTO results_measurement (boot_id, {_COLUMNS}, recorded_at)"  # noqa: S608 (our own names)
            f" SELECT %s, {_COLUMNS}, now() FROM incoming"
            " ON CONFLICT DO NOTHING",
            [boot.pk],
        )
    log.info("boot_stored", trace=boot.trace, boot=boot.pk, session=boot.session_id)


# Of a session's values so many are in memory at once.
_VALUES_AT_ONCE = 50_000
_NAMES = ("case__benchmark__name", "case__name", "metric__name", "metric__unit", "metric__better", "core_type__name")
_IDS = ("case", "metric", "core_type")


def case_orders(machine: Machine | None = None, benchmarks: Collection[str] = ()) -> list[CaseOrder]:
    """Every enabled case that `machine` measures, with the names of its benchmark's metrics.

    The machine's list may hold patterns: `mm-basic/*`. `benchmarks` (names, or BENCHMARK/CASE with the beginning of a
    case's name) choose among them; where they leave nothing, all are measured: a session never measures nothing.
    """
    cases = Case.objects.filter(enabled=True).select_related("benchmark").prefetch_related("benchmark__metrics")
    possible = [case for case in cases if machine is None or not machine.cases or _is_any(case, machine.cases)]
    chosen = [case for case in possible if any(_is_asked(case, wanted) for wanted in benchmarks)]
    return [
        CaseOrder(
            benchmark=case.benchmark.name,
            version=case.benchmark.version,
            case=case.name,
            runs=case.runs,
            warmup=case.warmup,
            timeout_seconds=case.timeout_seconds,
            metrics=tuple(metric.name for metric in case.benchmark.metrics.all()),
        )
        for case in chosen or possible
    ]


def _is_any(case: Case, patterns: Collection[str]) -> bool:
    return any(fnmatchcase(str(case), pattern) for pattern in patterns)


def _is_asked(case: Case, wanted: str) -> bool:
    benchmark, _slash, beginning = wanted.partition("/")
    return case.benchmark.name == benchmark and case.name.startswith(beginning)


def unknown_benchmarks(wanted: Collection[str]) -> list[str]:
    """Those of `wanted` (as in `case_orders`) that no enabled case answers to, in their order."""
    cases = Case.objects.filter(enabled=True).select_related("benchmark")
    return [name for name in wanted if not any(_is_asked(case, name) for case in cases)]


def columns(session: Session) -> Iterator[dict[str, Any]]:
    """Every value of a session, one column for each (case, metric, core type), as `sessions/ID/samples/` tells them.

    Straight from the rows: thousands of numbers through a serializer would take most of the time. Read some columns at
    a time, each by a query of its own, so that no connection has to live as long as a slow reader takes.
    """
    measured = Measurement.objects.filter(boot__session=session)
    sizes = measured.order_by(*_NAMES).values_list(*_IDS, *_NAMES).annotate(numbers=Sum("values__len"))
    heads: dict[tuple[int, ...], dict[str, Any]] = {}
    size = 0
    for case, metric, core_type, *names, numbers in list(sizes):
        if heads and size + numbers > _VALUES_AT_ONCE:
            yield from _filled(measured, heads)
            heads, size = {}, 0
        head = dict(zip(("benchmark", "case", "metric", "unit", "better", "core_type"), names, strict=True))
        heads[case, metric, core_type] = {**head, "boots": [], "arms": [], "judged": [], "warmup": [], "values": []}
        size += numbers
    yield from _filled(measured, heads)


def _filled(
    measured: "QuerySet[Measurement]", heads: dict[tuple[int, ...], dict[str, Any]]
) -> Sequence[dict[str, Any]]:
    cases, metrics, core_types = (set(ids) for ids in zip(*heads, strict=True)) if heads else ((),) * 3
    near = measured.filter(case__in=cases, metric__in=metrics, core_type__in=core_types).order_by("boot__position")
    rows = near.values_list(*_IDS, "boot__position", "boot__arm", "boot__state", "warmup", "values").iterator(
        chunk_size=500
    )
    for case, metric, core_type, position, arm, state, warmup, values in rows:
        # Some columns beside these may be of the same cases.
        if (column := heads.get((case, metric, core_type))) is not None:
            column["boots"].append(position)
            column["arms"].append(arm)
            column["judged"].append(state == BootState.MEASURED)
            column["warmup"].append(warmup)
            column["values"].append(values)
    return list(heads.values())

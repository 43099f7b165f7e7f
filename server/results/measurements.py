"""Storing what agents measured, each boot once, its values by COPY; which cases there are."""

import hashlib
import json
import math
from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

import structlog
from django.contrib.postgres.expressions import ArraySubquery
from django.contrib.postgres.fields import ArrayField
from django.db import IntegrityError, transaction
from django.db.models import Case as Conditional
from django.db.models import IntegerField, OuterRef, QuerySet, Subquery, TextField, When
from django.db.models.functions import JSONObject

from server.core import clock
from server.core.errors import DomainError
from server.core.rows.prepared import Given, IsOneOf, Prepared
from server.lab.attempts.arrivals import CaseOrder
from server.lab.attempts.boots import (
    BootReport,
    ToldBoot,
    close_boot,
    finish_session,
    keep_core_types,
    note_machine,
    told_boot,
)
from server.lab.attempts.ends import keep_for_the_record, wake_judge, was_stopped
from server.lab.attempts.life import unwanted
from server.lab.models import LATE, Attempt, Boot, BootState, CoreType, Machine, Session, SessionState
from server.lab.work import boots_itself
from server.results.models import Benchmark, BenchmarkVersion, Case, Metric, PackedValues
from server.results.packing import MeasuredCase, copy_measurements

log = structlog.get_logger(__name__)
_VALUES_IN_NOTE = 20
# Beyond what the case asks for. Whoever owns a machine sends what he likes, and every reader of a page pays for it.
_MANY = 10
# Of one boot. The shipped benchmarks together have some hundred cells and a few thousand values.
_MOST_CELLS = 4000
_MOST_VALUES = 100_000
_LONG = tuple(f"{build}__{text}" for build in ("base_build", "patched_build") for text in ("log_tail", "first_error"))


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


def record_boot(
    *, attempt: Attempt, position: int, report: BootReport, measured: Sequence[Values]
) -> tuple[bool, bool]:
    """Store the result of a boot; returns (stored, whether the agent should go on).

    The first result of a boot wins, whichever attempt of its session brings it: a result that waited in a spool is
    as good as a fresh one. That an emulator's boot failed while its attempt was being stopped is none. Values that
    cannot be stored stand in the boot's notes with the reason.
    """
    assert attempt.session_id is not None
    report = replace(report, values_sha256=_sha256_of(measured))
    is_measured = report.outcome == "measured"
    with transaction.atomic():
        locked: Any = _LOCKED.first(session=attempt.session_id, attempt=attempt.pk)
        session: Session = locked
        if _is_the_stops_doing(attempt, session, report):
            keep_for_the_record(attempt, outcome=report.outcome, reason=report.reason)
            return False, False
        told = told_boot(session, position, report)
        core_types = told.core_types
        # One that measured and tells no facts leaves it in doubt what it measured on.
        if (report.facts or is_measured) and _is_news(told, report, attempt):
            note_machine(machine=session.machine, facts=report.facts, trace=session.trace, measured=is_measured)
            if report.facts and is_measured:
                core_types = keep_core_types(core_types, machine=session.machine, facts=report.facts)
        rows, notes = _resolve(session, core_types, measured)
        if is_measured and not rows:
            report = replace(report, outcome="no-values", reason=report.reason or "no case gave a usable value")
        boot = _closed(told, replace(report, notes=[*report.notes, *notes]), attempt.key)
        if boot is not None and (boot.state == BootState.MEASURED or boot.outcome == LATE):
            copy_measurements([(boot.pk, rows)], clock.now())
            log.info("boot_stored", trace=boot.trace, boot=boot.pk, session=boot.session_id)
        one_more = boot is not None and boot.state == BootState.MEASURED
        finish_session(session=session, goes_on=one_more and told.others_open)
        if session.state in Session.FINAL:
            wake_judge(session)
    return boot is not None, session.state == SessionState.RUNNING and not locked.is_unwanted


def _locked() -> "QuerySet[Session]":
    """The session of an attempt with what is asked of it, so that results of its boots come one after the other."""
    is_unwanted = When(unwanted(Given("attempt", IntegerField())), then=True)
    return (
        Session.objects.filter(pk=Given("session", IntegerField()))
        .order_by()
        .select_for_update(of=("self",))
        .select_related("machine__uarch", "machine__facts", "base_build", "patched_build", "series", "trial")
        .defer(*_LONG)
        .annotate(is_unwanted=Conditional(is_unwanted, default=False))
    )


_LOCKED = Prepared(_locked)


def _closed(told: ToldBoot, report: BootReport, key: str) -> Boot | None:
    """As `close_boot`. DomainError `busy` where another session was told the same boot at this moment: the next try
    finds it there.
    """
    try:
        return close_boot(told, report=report, key=key)
    except IntegrityError as error:
        diagnosis = getattr(error.__cause__, "diag", None)
        if getattr(diagnosis, "constraint_name", None) != "boot_id_once":
            raise
        raise DomainError("busy", f"boot_id {report.boot_id} is being told elsewhere", permanent=False) from error


def _sha256_of(measured: Iterable[Values]) -> str:
    """Of all values with their names, in the order in which they came."""
    digest = hashlib.sha256()
    for item in measured:
        names = (item.benchmark, item.version, item.case, item.metric, item.core_type, item.warmup, len(item.values))
        digest.update(json.dumps(names).encode() + array("d", item.values).tobytes())
    return digest.hexdigest()


def _is_news(told: ToldBoot, report: BootReport, attempt: Attempt) -> bool:
    """Whether what the boot saw is believed, and no news of long ago.

    Only a kernel without the patches is trusted to say what the machine is: they could make their own kernel lie. A
    result that is there already comes late. Trouble of ours told again and again is no news, either.
    """
    boot = told.boot
    if not told.is_trusted or boot.state in {BootState.MEASURED, BootState.FAILED}:
        return False
    ours = report.outcome == "infrastructure"
    return not ours or (boot.state == BootState.RUNNING and boot.started_by == attempt.key)


def _is_the_stops_doing(attempt: Attempt, session: Session, report: BootReport) -> bool:
    """Whether a boot failed that somebody may have ended: an emulator is stopped with its agent, a machine is not."""
    if report.outcome in {"measured", "infrastructure"} or boots_itself(session.machine):
        return False
    return was_stopped(attempt)


def _resolve(
    session: Session, core_types: Mapping[str, CoreType], measured: Sequence[Values]
) -> tuple[list[MeasuredCase], list[dict[str, Any]]]:
    """Names to rows; what is unknown or not a number becomes a note. Of a cell that comes twice the first is kept."""
    known = _known(session, measured) if measured else {}
    rows: dict[tuple[int, int, int], MeasuredCase] = {}
    notes, total = [], 0
    for item in measured:
        benchmark = known.get(item.benchmark)
        same = benchmark is not None and benchmark.version == item.version
        case = benchmark.cases.get(item.case) if benchmark and same else None
        metric = benchmark.metrics.get(item.metric) if benchmark and case else None
        core_type = core_types.get(item.core_type)
        problem = _problem(item, case=case, metric=metric, known_core_type=core_type is not None)
        begun = benchmark.begun.get(case["pk"], item.version) if benchmark and case else item.version
        if begun != item.version:
            problem = f"this session measured the case with version {begun} before: boots would not compare"
        if not problem and (len(rows) >= _MOST_CELLS or total + len(item.values) > _MOST_VALUES):
            problem = f"a boot has at most {_MOST_CELLS} cells and {_MOST_VALUES} values"
        if problem or benchmark is None or case is None or metric is None or core_type is None:
            notes.append(_refused(item, problem))
        elif (cell := (case["pk"], metric, core_type.pk)) not in rows:
            total += len(item.values)
            rows[cell] = MeasuredCase(*cell, benchmark.version_id, item.warmup, item.values)
    return list(rows.values()), notes


def _refused(item: Values, problem: str) -> dict[str, Any]:
    kept = [value if math.isfinite(value) else str(value) for value in item.values[:_VALUES_IN_NOTE]]
    names = {"benchmark": item.benchmark, "case": item.case}
    return {**names, "outcome": "refused", "reason": problem, "values": kept}


@dataclass(frozen=True)
class _Known:
    """A benchmark as it is now: cases (`pk`, `runs`) and metrics by name, and with which version the session has begun
    to measure a case.
    """

    version: str
    version_id: int
    cases: Mapping[str, Mapping[str, Any]]
    metrics: Mapping[str, int]
    begun: Mapping[int, str]


def _known(session: Session, measured: Iterable[Values]) -> dict[str, _Known]:
    """What is measured of each benchmark, by its name. One query, but for a version that is new."""
    names = {"benchmarks": {item.benchmark for item in measured}, "cases": {item.case for item in measured}}
    found: list[Any] = _NAMED.rows(session=session.pk, **{name: list(some) for name, some in names.items()})
    return {
        row.name: _Known(
            row.version,
            row.version_id or BenchmarkVersion.objects.get_or_create(benchmark=row, hash=row.version)[0].pk,
            {case["name"]: case for case in row.own},
            {metric["name"]: metric["pk"] for metric in row.tells},
            {case: told["hash"] for told in row.begun for case in told["cases"]},
        )
        for row in found
    }


def _named() -> "QuerySet[Benchmark]":
    of_case = {"name": "name", "pk": "pk", "runs": "runs"}
    own = Case.objects.filter(IsOneOf("name", Given("cases", _NAMES)), benchmark=OuterRef("pk")).order_by()
    metrics = Metric.objects.filter(benchmark=OuterRef("pk")).order_by()
    version = BenchmarkVersion.objects.filter(benchmark=OuterRef("pk"), hash=OuterRef("version"))
    # The boots of a session measure the same cases: of all their rows a few are distinct.
    begun = PackedValues.objects.filter(
        boot__session=Given("session", IntegerField()), version__benchmark=OuterRef("pk")
    ).order_by()
    told = begun.values(json=JSONObject(hash="version__hash", cases="cases")).distinct()
    found = Benchmark.objects.filter(IsOneOf("name", Given("benchmarks", _NAMES))).order_by()
    return found.annotate(
        own=ArraySubquery(own.values(json=JSONObject(**of_case))),
        tells=ArraySubquery(metrics.values(json=JSONObject(name="name", pk="pk"))),
        version_id=Subquery(version.order_by().values("pk")),
        begun=ArraySubquery(told),
    )


_NAMES = ArrayField(TextField())
_NAMED = Prepared(_named)


def _problem(item: Values, *, case: Mapping[str, Any] | None, metric: int | None, known_core_type: bool) -> str:
    if case is None:
        return f"unknown case {item.benchmark}/{item.case} of version {item.version}"
    if metric is None:
        return f"{item.benchmark} has no metric {item.metric}"
    if not known_core_type:
        return f"the machine has no core type {item.core_type}"
    if not all(map(math.isfinite, item.values)):
        return "a value is not a finite number"
    number = len(item.values)
    if number > _MANY * case["runs"]:
        return f"{number} values, where the case asks for {case['runs']}"
    return f"{number} values, of which {item.warmup} are warm-up: nothing is left" if number <= item.warmup else ""


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

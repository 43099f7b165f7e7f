"""One case of a series as it was judged on every machine: what somebody needs to run it again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from server.builds.models import Build
from server.detection.models import Comparison
from server.detection.selectors import CellView, cell_view
from server.lab.facts import first_facts
from server.lab.models import Boot, Session
from server.results.models import Case, Measurement, Metric
from server.sources.models import Series


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
    """`version` is that of the benchmark which measured, not of today's."""

    series: Series
    case: Case
    version: str
    metrics: tuple[Metric, ...]
    machines: tuple[PublishedMachine, ...]
    cells: tuple[CellView, ...]


def published_case(series: Series, *, benchmark: str, case: str) -> PublishedCase | None:
    """The case with all its judged cells in this series; None if it was not judged there. Three queries."""
    rows = list(
        Comparison.objects.filter(session__series=series, case__benchmark__name=benchmark, case__name=case)
        .select_related(
            "session__machine__uarch",
            "session__base_build__config",
            "session__base_build__toolchain",
            "session__patched_build__config",
            "session__patched_build__toolchain",
            "case__benchmark",
            "metric",
            "core_type",
        )
        .order_by("session__machine__uarch__name", "session__machine__name", "core_type__name", "metric__name")
    )
    if not rows:
        return None
    sessions = {row.session_id: row.session for row in rows}
    metrics = {row.metric_id: row.metric for row in rows}
    return PublishedCase(
        series=series,
        case=rows[0].case,
        version=_version(list(sessions), rows[0].case),
        metrics=tuple(sorted(metrics.values(), key=lambda metric: metric.name)),
        machines=_machines(list(sessions.values())),
        cells=tuple(cell_view(row) for row in rows),
    )


def _version(sessions: Sequence[int], case: Case) -> str:
    """Of several, the one that was stored last; rows of old do not tell."""
    stored = Measurement.objects.filter(boot__session__in=sessions, case=case).exclude(version="")
    return stored.order_by("-pk").values_list("version", flat=True).first() or case.benchmark.version


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

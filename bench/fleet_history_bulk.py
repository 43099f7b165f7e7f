"""Many boots of a session stored at once, as `record_boot` stores each: a session of thousands takes an hour there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection, transaction

from server.core import clock
from server.core.models import Transition
from server.lab.facts import keep_facts
from server.lab.models import Boot, BootState, Session
from server.results.models import Case, Metric
from server.results.services import Values

_FIELDS = ("state", "state_since", "outcome", "boot_id", "build_id", "started_at", "ended_at")
_COLUMNS = 'boot_id, case_id, metric_id, core_type_id, "values", warmup, version, recorded_at'


@dataclass(frozen=True)
class Booted:
    """A boot with what an agent would tell of it."""

    boot: Boot
    boot_id: str
    build_id: str
    started_at: datetime
    ended_at: datetime
    facts: Mapping[str, Any]
    values: Sequence[Values]


class Bulk:
    """Knows the rows of cases and metrics, which stay as they are."""

    def __init__(self) -> None:
        rows = Case.objects.select_related("benchmark")
        self._cases = {(row.benchmark.name, row.name): row.pk for row in rows}
        self._metrics = {(row.benchmark.name, row.name): row.pk for row in Metric.objects.select_related("benchmark")}

    def store(self, session: Session, booted: Sequence[Booted]) -> None:
        """Not the last ones of the session: `record_boot` ends it, and wakes who waits for it."""
        now, core_type = clock.now(), session.machine.core_types.get().pk
        with transaction.atomic():
            for one in booted:
                row = one.boot
                row.state, row.state_since, row.outcome = BootState.MEASURED, now, "measured"
                row.boot_id, row.build_id = one.boot_id, one.build_id
                row.started_at, row.ended_at = one.started_at, one.ended_at
            Boot.objects.bulk_update([one.boot for one in booted], _FIELDS)
            for one in booted:
                keep_facts(one.boot, one.facts)
            Transition.objects.bulk_create(
                Transition(
                    trace=one.boot.trace, subject="boot", subject_id=one.boot.pk, before="planned", after="measured"
                )
                for one in booted
            )
            self._copy(booted, core_type, now)

    def _copy(self, booted: Sequence[Booted], core_type: int, now: datetime) -> None:
        with (
            connection.cursor() as cursor,
            cursor.copy(f"COPY results_measurement ({_COLUMNS}) FROM STDIN") as copy,
        ):
            for one in booted:
                for item in one.values:
                    case, metric = self._cases[item.benchmark, item.case], self._metrics[item.benchmark, item.metric]
                    found = (case, metric, core_type, list(item.values), item.warmup, item.version, now)
                    copy.write_row((one.boot.pk, *found))

"""What a replay came to: read from the rows of a database that may be away."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from django.db import DatabaseError, InterfaceError, connection
from django.db.models import QuerySet

from server.detection.models import Comparison, Finding
from server.lab.models import Boot, Session, Trial
from server.sources.models import Series

_T = TypeVar("_T")
_PATIENCE_SECONDS = 90.0
_POLL_SECONDS = 0.2
_NUMBERS = ("verdict", "base_boots", "patched_boots", "ratio", "ratio_low", "ratio_high", "p_value", "p_adjusted")


@dataclass(frozen=True)
class Outcome:
    """One posting's end, without the numbers of its rows."""

    findings: tuple[tuple[str, str, str, str], ...]
    verdicts: tuple[str, ...]
    comparisons: tuple[str, ...]
    trials: tuple[str, ...]
    boots: tuple[str, ...]

    def differences(self, other: "Outcome") -> list[str]:
        return [name for name, value in vars(self).items() if value != getattr(other, name)]


def persist(ask: Callable[[], _T]) -> _T:
    """Ask until the database answers. Raises what it said last when it is away for very long."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return ask()
        except (DatabaseError, InterfaceError):
            connection.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(_POLL_SECONDS)


def outcome(series: Series) -> Outcome:
    findings = Finding.objects.filter(series=series)
    sessions = Session.objects.filter(trial__series=series)
    place = ("session__machine__name", "case__benchmark__name", "case__name", "metric__name", "core_type__name")
    compared = Comparison.objects.filter(session__in=sessions).order_by(*place)
    boots = Boot.objects.filter(session__in=sessions).order_by("session__machine__name", "position")
    return Outcome(
        findings=tuple(findings.values_list("kind", "state", "headline", "culprit__tree_sha")),
        verdicts=_texts(findings.order_by("verdicts__uarch"), "verdicts__uarch__name", "verdicts__verdict"),
        comparisons=_texts(compared, *place, *_NUMBERS),
        trials=_texts(Trial.objects.filter(series=series).order_by("key"), "purpose", "state", "looks"),
        boots=_texts(boots, "session__machine__name", "position", "arm", "state", "outcome"),
    )


def _texts(rows: QuerySet[Any], *fields: str) -> tuple[str, ...]:
    return tuple(str(row) for row in rows.values_list(*fields))

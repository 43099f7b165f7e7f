"""One row of what is stored, computed anew: what differs, or why it could not be computed."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import structlog
from django.db import InterfaceError, OperationalError
from django.db.models import QuerySet

from server.core.access.tries import OutOfBoundsError, bounded
from server.core.database import snapshot
from server.detection.models import Finding, FleetState, RecomputationChunk
from server.detection.recompute.differences import (
    Difference,
    finding_differences,
    has_left,
    noise_differences,
    trial_differences,
)
from server.detection.recompute.replay import Replay
from server.lab.models import Machine, Trial

log = structlog.get_logger(__name__)

Kind = RecomputationChunk.Kind
# Timelines are looked at for so long in one state of the database, which must not be kept for hours.
SECONDS = 8.0

# Of all kinds but timelines, which take more than a task has.
_ROWS: dict[str, QuerySet[Any]] = {
    Kind.FINDING: Finding.objects.select_related("trial", "series"),
    Kind.TRIAL: Trial.objects.filter(state=Trial.State.DONE, finding=None),
    Kind.NOISE: Machine.objects.filter(noise_profiles__isnull=False).distinct(),
}
_DIFFERENCES: dict[str, Callable[[Any], Iterable[Difference]]] = {
    Kind.FINDING: finding_differences,
    Kind.TRIAL: trial_differences,
    Kind.NOISE: noise_differences,
}


@dataclass(frozen=True)
class Recomputed:
    """Of one row, or of some heads of a fleet; what is in the archive alone has `left` and is not computed."""

    differences: tuple[str, ...] = ()
    left: bool = False
    error: str = ""


def rows_of(kind: str) -> "QuerySet[Any]":
    return _ROWS[kind].order_by("pk")


def fleets() -> "QuerySet[FleetState]":
    return FleetState.objects.select_related("branch__tree").order_by("pk")


def recomputed(kind: str, pk: int) -> Recomputed | None:
    """None where the row is gone. Whatever is wrong with it is told: it does not stand in the way of others."""
    return _told(f"{kind} {pk}", lambda: _row_recomputed(kind, pk))


def replayed(replay: Replay) -> Recomputed:
    """Go on with a fleet; one that fails is over."""
    told = _told(f"fleet {replay.row.pk}, head {replay.reached + 1}", lambda: _heads_entered(replay))
    assert told is not None
    if told.error:
        replay.is_over = True
    return told


def all_recomputed(series_id: int | None = None) -> Iterator[tuple[str, Recomputed]]:
    """Everything, one after the other, with its kind; or the finding and the trials of one series."""
    for kind in _ROWS:
        rows = rows_of(kind)
        if series_id is not None:
            if kind == Kind.NOISE:
                return
            rows = rows.filter(series=series_id)
        for pk in rows.values_list("pk", flat=True).iterator():
            if told := recomputed(kind, pk):
                yield kind, told
    for row in fleets():
        replay = Replay(row)
        while not replay.is_over:
            yield Kind.FLEET, replayed(replay)


def _row_recomputed(kind: str, pk: int) -> Recomputed | None:
    with snapshot():
        row = _ROWS[kind].filter(pk=pk).first()
        if row is None:
            return None
        return Recomputed(tuple(map(str, _DIFFERENCES[kind](row))), _is_in_the_archive(row))


def _is_in_the_archive(row: object) -> bool:
    trial = row.trial if isinstance(row, Finding) else row
    return isinstance(trial, Trial) and has_left(trial)


def _heads_entered(replay: Replay) -> Recomputed:
    with snapshot():
        return Recomputed(tuple(map(str, replay.go_on(SECONDS))))


def _told(name: str, compute: Callable[[], Recomputed | None]) -> Recomputed | None:
    try:
        with bounded(name):
            return compute()
    except (OperationalError, InterfaceError, OutOfBoundsError):
        # Of the database or of the process, and not of the row: it counts as a try of the chunk.
        raise
    except Exception as error:
        log.exception("not_recomputed", row=name)
        return Recomputed(error=f"{name} could not be computed: {type(error).__name__}: {error}")


@dataclass
class Recount:
    """What was found, in numbers."""

    checked: Counter[str] = field(default_factory=Counter)
    found: int = 0
    left: int = 0
    broken: int = 0

    def add(self, kind: str, told: Recomputed) -> None:
        self.checked[kind] += not told.error
        self.found += len(told.differences)
        self.left += told.left
        self.broken += bool(told.error)

    def lines(self) -> list[str]:
        trials = self.checked[Kind.TRIAL]
        besides = f" and {trials} other trials" if trials else ""
        lines = [f"{self.checked[Kind.FINDING]} findings{besides} recomputed, {self.found} differences"]
        if self.left:
            lines.append(f"{self.left} of them were passed over: what they were judged by is in the archive alone")
        if self.broken:
            lines.append(f"{self.broken} could not be computed")
        return lines

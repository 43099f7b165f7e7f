"""A recomputation from its first chunk to its report: chunks are sent to workers, and sent again when nothing moves."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import InterfaceError, OperationalError, connection
from django.db.models import Case, Count, F, Q, QuerySet, Sum, When
from django.db.models.functions import Coalesce, Least

from server.core import clock
from server.core.tasks import enqueue
from server.detection.models import Recomputation, RecomputationChunk
from server.detection.recompute.chunks import MOST_TOLD
from server.detection.recompute.outcomes import Kind, Recount

# Chunks that workers may have at once: more than a site has processes for them.
_AT_ONCE = 64
# After so long without a word a message is taken for lost, or its worker for dead. Twice is harmless.
_SILENCE_SECONDS = 30.0
# Each time twice as long, up to this: where no worker is, messages would pile up. A database may be away for as long.
_LONGEST_SECONDS = 900.0
_LOOK_SECONDS = 1.0


@dataclass(frozen=True)
class Going:
    """How far a recomputation is: rows and heads of all, fields that differ, rows that could not be computed."""

    size: int
    taken: int
    found: int
    broken: int
    # Of one worker that were needed so far; what is left would take as much by what its kind took; None: nobody knows.
    spent: float
    needed: float | None
    moved: bool

    @property
    def share(self) -> float:
        return self.taken / self.size if self.size else 1.0


def going(recomputation: Recomputation) -> Going:
    """One query."""
    taken = Case(When(done_at=None, then=Least("taken", "size")), default=F("size"))
    lately = clock.now() - timedelta(seconds=2 * _SILENCE_SECONDS)
    rows = list(
        recomputation.chunks.order_by()
        .values("kind")
        .annotate(
            all=Sum("size"),
            done=Sum(taken),
            differ=Sum("found"),
            wrong=Sum(Coalesce("errors__len", 0)),
            spent=Sum("seconds"),
            moved=Count("pk", filter=Q(moved_at__gte=lately)),
        )
    )
    done, spent = sum(row["done"] for row in rows), sum(row["spent"] for row in rows)
    # A kind that nobody began is taken to be as dear as the others.
    prices = {row["kind"]: row["spent"] / row["done"] for row in rows if row["done"]}
    needed = sum((row["all"] - row["done"]) * prices.get(row["kind"], spent / max(done, 1)) for row in rows)
    return Going(
        size=sum(row["all"] for row in rows),
        taken=done,
        found=sum(row["differ"] for row in rows),
        broken=sum(row["wrong"] for row in rows),
        spent=spent,
        needed=needed if done else None,
        moved=any(row["moved"] for row in rows),
    )


@dataclass
class _Sent:
    """The last message about a chunk: when, and after how long without a word the next one is sent."""

    at: float
    moved_at: datetime | None
    pause: float


def follow(recomputation: Recomputation, tell: Callable[[Going], None], say: Callable[[str], None]) -> None:
    """Until every chunk is done. Who follows may be killed: what was sent goes on, and the next one sends the rest.

    A database that is away is said, and waited for.
    """
    sent: dict[int, _Sent] = {}
    away_since: float | None = None
    while True:
        try:
            if not _send_waiting(recomputation, sent):
                Recomputation.objects.filter(pk=recomputation.pk, ended_at=None).update(ended_at=clock.now())
                return
            now = going(recomputation)
        except (OperationalError, InterfaceError) as error:
            if away_since is None:
                away_since = time.monotonic()
                reason = str(error).partition("\n")[0]
                say(f"the database is away, it is asked again: {reason}")
            elif time.monotonic() - away_since >= _LONGEST_SECONDS:
                raise
            connection.close()
        else:
            away_since = None
            tell(now)
        time.sleep(_LOOK_SECONDS)


def _send_waiting(recomputation: Recomputation, sent: dict[int, _Sent]) -> bool:
    """Whether some are not done."""
    waiting = list(_open(recomputation)[:_AT_ONCE])
    now, silent = time.monotonic(), clock.now() - timedelta(seconds=_SILENCE_SECONDS)
    for chunk_id, moved_at in waiting:
        last = sent.get(chunk_id)
        if last is None:
            enqueue("detection.recompute", chunk_id)
            sent[chunk_id] = _Sent(now, moved_at, _SILENCE_SECONDS)
            continue
        if moved_at != last.moved_at:
            last.moved_at, last.pause = moved_at, _SILENCE_SECONDS
        if now - last.at >= last.pause and (moved_at is None or moved_at < silent):
            enqueue("detection.recompute", chunk_id)
            last.at, last.pause = now, min(2 * last.pause, _LONGEST_SECONDS)
    return bool(waiting)


def _open(recomputation: Recomputation) -> "QuerySet[RecomputationChunk, tuple[int, datetime | None]]":
    return recomputation.chunks.filter(done_at=None).order_by("pk").values_list("pk", "moved_at")


def told(recomputation: Recomputation) -> Iterator[str]:
    """What differs and what could not be computed, a line each, in the order of one that needs no workers."""
    for kind in Kind.values:
        for chunk in recomputation.chunks.filter(kind=kind).exclude(found=0, errors=[]).order_by("pk").defer("rest"):
            yield from chunk.differences
            if chunk.found > MOST_TOLD:
                yield f"and {chunk.found - MOST_TOLD} more differences of {chunk}"
            yield from chunk.errors


def recount(recomputation: Recomputation) -> Recount:
    rows = recomputation.chunks.order_by().values_list("kind")
    sums = {
        "ran": Sum("checked"),
        "differ": Sum("found"),
        "away": Sum("left"),
        "wrong": Sum(Coalesce("errors__len", 0)),
    }
    found = Recount()
    for kind, ran, differ, away, wrong in rows.annotate(**sums):
        found.checked[kind] = ran
        found.found, found.left, found.broken = found.found + differ, found.left + away, found.broken + wrong
    return found

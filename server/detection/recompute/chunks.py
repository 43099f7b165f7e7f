"""All that is stored cut into chunks, which workers compute anew: each row once, whoever is killed meanwhile."""

import hashlib
import time
from collections.abc import Iterator
from datetime import timedelta
from importlib.metadata import version
from itertools import islice
from pathlib import Path

import structlog
from django.conf import settings
from django.db import transaction

import server
from server.core import clock
from server.core.access.tries import MOST_BEGUN
from server.core.database import advisory_lock, wait_for_lock
from server.detection.models import Recomputation, RecomputationChunk
from server.detection.recompute.outcomes import SECONDS, Kind, Recomputed, fleets, recomputed, replayed, rows_of
from server.detection.recompute.replay import Replay

log = structlog.get_logger(__name__)

# So many that a chunk takes some seconds where rows are large; one that takes longer goes on with another message.
_ROWS_AT_ONCE = {Kind.FINDING: 50, Kind.TRIAL: 50, Kind.NOISE: 1}
# Where everything differs, nobody reads all of it.
MOST_TOLD = 1000
_KEPT = timedelta(days=90)


def _code() -> str:
    """Version and hash of this program, and the libraries that count for it."""
    root = Path(server.__file__).parent
    every = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        every.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    for library in ("numpy", "scipy"):
        every.update(version(library).encode())
    return f"{settings.VERSION} {every.hexdigest()[:12]}"


# Of the program that runs, whatever stands on the disk by the time it is asked.
CODE = _code()


def begin(*, anew: bool = False) -> Recomputation:
    """The last recomputation by this program if it has not ended, else (or `anew`) one of all that is stored now."""
    with transaction.atomic():
        wait_for_lock("detection.recompute")
        last = None if anew else Recomputation.objects.filter(code=CODE).first()
        if last is not None and last.ended_at is None:
            return last
        made = Recomputation.objects.create(code=CODE)
        RecomputationChunk.objects.bulk_create(_planned(made), batch_size=1000)
    return made


def forget_recomputations() -> int:
    """Remove those that began long ago; returns how many rows."""
    return Recomputation.objects.filter(begun_at__lt=clock.now() - _KEPT).delete()[0]


def _planned(made: Recomputation) -> Iterator[RecomputationChunk]:
    """Timelines first: a branch is looked at by one worker alone, head after head, while others do the rest."""
    for row in fleets():
        yield RecomputationChunk(
            recomputation=made, kind=Kind.FLEET, first=row.pk, last=row.pk, size=max(row.observed, 1)
        )
    for kind, most in _ROWS_AT_ONCE.items():
        pks = rows_of(kind).values_list("pk", flat=True).iterator()
        while some := list(islice(pks, most)):
            yield RecomputationChunk(recomputation=made, kind=kind, first=some[0], last=some[-1], size=len(some))


def go_on(chunk_id: int) -> bool:
    """Compute rows of a chunk for some seconds; whether some are left. Harmless twice and beside another."""
    with advisory_lock(f"detection.recompute.{chunk_id}") as free:
        if not free:
            return False
        chunk = RecomputationChunk.objects.select_related("recomputation").filter(pk=chunk_id, done_at=None).first()
        if chunk is None:
            return False
        if chunk.recomputation.code != CODE:
            log.warning("recomputation_of_other_code", chunk=chunk_id, code=chunk.recomputation.code, own=CODE)
            return False
        share = _Share(chunk)
        if chunk.kind == Kind.FLEET:
            share.enter_heads()
        else:
            share.compute_rows()
        return chunk.done_at is None and share.is_mine


class _Share:
    """What one task does of a chunk. Each row is noted when it is done: killed before, it is computed once more."""

    def __init__(self, chunk: RecomputationChunk) -> None:
        self.chunk = chunk
        self.is_mine = True
        self._began = time.monotonic()
        self._until = self._began + SECONDS
        # Those that began with the next row before came to no end.
        self._gives_up = chunk.tries >= MOST_BEGUN
        if not self._gives_up:
            self._write(tries=chunk.tries + 1)

    def compute_rows(self) -> None:
        chunk = self.chunk
        waiting = rows_of(chunk.kind).filter(pk__gt=chunk.reached, pk__range=(chunk.first, chunk.last))
        pks = list(waiting.values_list("pk", flat=True))
        for pk in pks:
            told = self._given_up(f"{chunk.kind} {pk}") or recomputed(chunk.kind, pk)
            is_last = pk == pks[-1]
            goes_on = not is_last and time.monotonic() < self._until
            done_at = clock.now() if is_last else None
            self._note(told, reached=pk, taken=chunk.taken + 1, tries=int(goes_on), done_at=done_at)
            if not (goes_on and self.is_mine):
                return
        if not pks:
            self._write(done_at=clock.now())

    def enter_heads(self) -> None:
        chunk = self.chunk
        row = fleets().filter(pk=chunk.first).first()
        if row is None:
            self._write(done_at=clock.now())
            return
        if told := self._given_up(f"fleet {row.pk}, after head {chunk.reached}"):
            self._note(told, done_at=clock.now(), rest=None)
            return
        replay = Replay.taken_up(row, chunk.rest) if chunk.rest else Replay(row)
        told = replayed(replay)
        if replay.is_over:
            self._note(told, reached=replay.reached, done_at=clock.now(), rest=None)
        else:
            self._note(told, reached=replay.reached, taken=replay.reached, tries=0, rest=replay.rest())

    def _given_up(self, name: str) -> Recomputed | None:
        if not self._gives_up:
            return None
        self._gives_up = False
        return Recomputed(error=f"{name} could not be computed: {MOST_BEGUN} workers came to no end with it")

    def _note(self, told: Recomputed | None, **values: object) -> None:
        chunk, now = self.chunk, time.monotonic()
        values["seconds"], self._began = chunk.seconds + now - self._began, now
        if told is not None:
            values["checked"] = chunk.checked + (not told.error)
            values["left"] = chunk.left + told.left
            if told.differences:
                room = MOST_TOLD - len(chunk.differences)
                values["differences"] = [*chunk.differences, *told.differences[: max(room, 0)]]
                values["found"] = chunk.found + len(told.differences)
            if told.error:
                values["errors"] = [*chunk.errors, told.error]
        self._write(**values)

    def _write(self, **values: object) -> None:
        """Only where nobody else has moved on: the lock may be lost, and then another does the same rows."""
        values["moved_at"] = clock.now()
        mine = RecomputationChunk.objects.filter(pk=self.chunk.pk, reached=self.chunk.reached, done_at=None)
        self.is_mine = mine.update(**values) == 1
        for name, value in values.items():
            setattr(self.chunk, name, value)

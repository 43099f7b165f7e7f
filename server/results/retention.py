"""How samples, conditions, steps of boots and logs leave the database: by the site's policy, month by month.

Each session is written to the archive first. Its rows go in a transaction of their own, in which what the archive has
is read back and compared with what is there. Whoever is killed in between is followed by a sweep that goes on there.
"""

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime

import pyarrow as pa
import structlog
from django.conf import settings
from django.db import connection, transaction
from django.db.models import Exists, OuterRef

from server.builds.storage import artifact_store
from server.core import clock
from server.core.database import advisory_lock
from server.core.errors import DomainError
from server.core.rows.partitions import drop_empty, make_parts
from server.lab.models import Attempt, Boot, BootState, Conditions, Session
from server.results.archive import as_table, part_file, read_place, rows_of, write_part
from server.results.models import ArchivedSession, ArchivePart, KeptKind, KeptMonth, PackedValues

log = structlog.get_logger(__name__)

# Of one file: so many sessions, and what is known of their size is less than the store takes as one file.
_SESSIONS = 200
# Months that a sweep looks at in which sessions are held, those that were not looked at for longest.
_MONTHS = 3
_YEAR = 12
InUse = Callable[[Collection[int]], set[int]]
Gone = dict[str, int]


@dataclass
class Leaving:
    """What of one kind and month has left in a run, or would leave; `held` stay whole for who uses them."""

    kind: str
    month: date
    sessions: int = 0
    rows: int = 0
    held: int = 0


def policy() -> dict[str, int]:
    """For how many months rows of each kind are kept; those that are kept for ever are not in it."""
    return {kind: months for kind, months in settings.KEEP_MONTHS.items() if months}


def retain(in_use: InUse, *, seconds: float, dry_run: bool = False) -> list[Leaving]:
    """Let leave what the policy lets go, for about so many seconds; the next run goes on. One process at a time.

    `in_use` tells which of some sessions are needed whole.
    """
    with advisory_lock("results.retain") as free:
        if not free:
            return []
        until = time.monotonic() + seconds
        if not dry_run:
            _finish(in_use, until)
        done = []
        for kind, month in _due(dry_run=dry_run):
            if time.monotonic() >= until:
                break
            leaving = _leave(kind, month, in_use, until, dry_run=dry_run)
            if leaving.sessions or leaving.held:
                done.append(leaving)
            if not dry_run:
                _tell(leaving)
        return done


def _due(*, dry_run: bool) -> Iterator[tuple[str, date]]:
    """Kinds and months whose time is over and that are not gone through to their end, the oldest first."""
    first = Session.objects.order_by("created_at").values_list("created_at", flat=True).first()
    if first is None:
        return
    for kind, months in policy().items():
        begin, end = _index(first.astimezone(UTC).date()), _index(clock.now().date()) - months
        known = {_index(row.month): row for row in KeptMonth.objects.filter(kind=kind)}
        fresh = [index for index in range(begin, end) if index not in known]
        open_ = [row for row in known.values() if not row.is_over]
        again = sorted(open_, key=lambda row: row.looked_at)
        # A month in which something is held is asked about again and again: not all of them each time.
        for row in again if dry_run else again[:_MONTHS]:
            yield kind, row.month
        yield from ((kind, _month(index)) for index in fresh)


def _index(day: date) -> int:
    return day.year * _YEAR + day.month - 1


def _month(index: int) -> date:
    return date(index // _YEAR, index % _YEAR + 1, 1)


def _leave(kind: str, month: date, in_use: InUse, until: float, *, dry_run: bool) -> Leaving:
    leaving = Leaving(kind, month)
    is_over = True
    for sessions in _batches(kind, month):
        if time.monotonic() >= until:
            is_over = False
            break
        kept = in_use(sessions) | _open(sessions)
        going = [pk for pk in sessions if pk not in kept]
        leaving.held += len(kept)
        if dry_run:
            leaving.sessions += len(going)
            leaving.rows += sum(rows_of(kind, pk).count() for pk in going)
            continue
        while going and is_over:
            written = _write(kind, month, going)
            going = going[len(written) :]
            for of in written:
                # What is written and not dropped is what the next run begins with.
                is_over = is_over and time.monotonic() < until
                if is_over:
                    _drop(of, in_use, leaving)
    if not dry_run:
        told = {"held": leaving.held, "is_over": is_over and not leaving.held, "looked_at": clock.now()}
        KeptMonth.objects.update_or_create(kind=kind, month=month, defaults=told)
    return leaving


def _batches(kind: str, month: date) -> Iterator[list[int]]:
    """Sessions of the month that are not in the archive, some at a time."""
    begin, end = (datetime(day.year, day.month, 1, tzinfo=UTC) for day in (month, _month(_index(month) + 1)))
    there = ArchivedSession.objects.filter(session=OuterRef("pk"), kind=kind)
    rows = Session.objects.filter(~Exists(there), created_at__gte=begin, created_at__lt=end).order_by("pk")
    last = 0
    while found := list(rows.filter(pk__gt=last).values_list("pk", flat=True)[:_SESSIONS]):
        last = found[-1]
        yield found


def _open(sessions: Collection[int]) -> set[int]:
    going_on = Session.objects.filter(pk__in=sessions).exclude(state__in=Session.FINAL)
    return set(going_on.values_list("pk", flat=True))


def _write(kind: str, month: date, sessions: Collection[int]) -> list[ArchivedSession]:
    of_month = ArchivePart.objects.filter(kind=kind, month=month)
    number = 1 + (of_month.order_by("-number").values_list("number", flat=True).first() or 0)
    written = write_part(kind, month, number, sessions)
    with transaction.atomic():
        part = ArchivePart.objects.create(
            kind=kind,
            month=month,
            number=number,
            sha256=written.sha256,
            manifest=written.manifest,
            size=written.size,
            rows=written.rows,
            sessions=len(written.places),
        )
        rows = [
            ArchivedSession(session_id=pk, kind=kind, part=part, place=place) for pk, place in written.places.items()
        ]
        return ArchivedSession.objects.bulk_create(rows)


def _finish(in_use: InUse, until: float) -> None:
    """What a run that was killed had written, and not dropped."""
    for of in ArchivedSession.objects.filter(left_at=None).select_related("part").order_by("pk"):
        if time.monotonic() >= until:
            return
        leaving = Leaving(of.kind, of.part.month)
        _drop(of, in_use, leaving)
        _tell(leaving)


def _tell(leaving: Leaving) -> None:
    if leaving.sessions:
        month = f"{leaving.month:%Y-%m}"
        log.info("rows_left", kind=leaving.kind, month=month, sessions=leaving.sessions, rows=leaving.rows)


def _drop(of: ArchivedSession, in_use: InUse, leaving: Leaving) -> None:
    """Take one session's rows away, if the archive gives back what is there and nobody needs them by now."""
    with transaction.atomic():
        # Results come in, and states move, with this row locked.
        Session.objects.select_for_update(of=("self",)).get(pk=of.session_id)
        if not ArchivedSession.objects.filter(pk=of.pk, left_at=None).exists():
            # Somebody who found the lock free, since its holder had lost it, was faster.
            return
        if in_use([of.session_id]) or _open([of.session_id]):
            of.delete()
            leaving.held += 1
            return
        there = as_table(of.kind, of.session_id)
        if not _is_there(of, there):
            # It changed after it was written, or was not stored as it was: it is written anew.
            log.warning("archive_differs", kind=of.kind, session=of.session_id, archive=of.part.sha256)
            of.delete()
            leaving.held += 1
            return
        _REMOVAL[of.kind](of.session_id)
        ArchivedSession.objects.filter(pk=of.pk).update(left_at=clock.now())
        leaving.sessions += 1
        leaving.rows += there.num_rows


def _is_there(of: ArchivedSession, rows: pa.Table) -> bool:
    """Whether the archive gives these rows back. Raises DomainError `store-away`."""
    try:
        with part_file(of.part.sha256) as file:
            return bool(read_place(file, of.place).equals(rows))
    except DomainError as error:
        if error.code != "damaged":
            raise
        log.exception("archive_damaged", archive=of.part.sha256)
        if not ArchivedSession.objects.filter(part=of.part_id).exclude(left_at=None).exists():
            # Under its name no other of the same content would be stored.
            artifact_store().put_aside(of.part.sha256)
        return False


_SUMMARISE = """
INSERT INTO results_summary (id, boot_id, metric_id, core_type_id, version_id, recorded_at, first_case, cases, medians)
SELECT p.id, p.boot_id, p.metric_id, p.core_type_id, p.version_id, p.recorded_at, p.first_case, p.cases, ARRAY(
    SELECT (
        SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY one)
        FROM unnest(p."values"[coalesce(p.ends[n - 1], 0) + 1 + p.warmups[n] : p.ends[n]]) AS one
    ) FROM generate_subscripts(p.cases, 1) AS n ORDER BY n
)
FROM results_packedvalues AS p WHERE p.boot_id = ANY(%s)
"""


def _boots(session: int) -> list[int]:
    return list(Boot.objects.filter(session=session).order_by().values_list("pk", flat=True))


def _summarise(session: int) -> None:
    boots = _boots(session)
    with connection.cursor() as cursor:
        cursor.execute(_SUMMARISE, [boots])
    PackedValues.objects.filter(boot__in=boots).delete()


def _forget_conditions(session: int) -> None:
    Conditions.objects.filter(boot__in=_boots(session)).delete()


def _forget_steps(session: int) -> None:
    steps = rows_of(KeptKind.TRANSITIONS, session)
    steps.order_by().delete()


def _forget_logs(session: int) -> None:
    Attempt.objects.filter(session=session).update(log="")


_REMOVAL: dict[str, Callable[[int], None]] = {
    KeptKind.SAMPLES: _summarise,
    KeptKind.CONDITIONS: _forget_conditions,
    KeptKind.TRANSITIONS: _forget_steps,
    KeptKind.LOGS: _forget_logs,
}


def tend_parts() -> None:
    """Make parts of the large tables ahead, and drop those that all rows have left. One process at a time."""
    with advisory_lock("results.parts") as free:
        if free:
            make_parts(Boot.objects.order_by("-pk").values_list("pk", flat=True).first() or 0)
            drop_empty(_is_filled_yet)


def _is_filled_yet(first: int, end: int) -> bool:
    """Whether a boot of these ids may still bring something."""
    return Boot.objects.filter(pk__gte=first, pk__lt=end, state__in=[BootState.PLANNED, BootState.RUNNING]).exists()


def check_part(part: ArchivePart) -> str:
    """Read a file of the archive from its beginning to its end; what is wrong with it, "" where nothing is."""
    try:
        with part_file(part.sha256, whole=True) as file:
            if file.metadata.num_rows != part.rows:
                return f"{part.rows} rows were written, {file.metadata.num_rows} are there"
            for place in range(file.num_row_groups):
                read_place(file, place)
    except DomainError as error:
        return error.message
    return ""

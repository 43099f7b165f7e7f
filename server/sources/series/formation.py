"""From threads to series: every thread that changed is grouped anew as a whole, in a transaction of its own."""

import math
import time
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

import psycopg
import structlog
from django.db import DataError, IntegrityError, OperationalError, transaction
from django.db.models import Q

from server.core import clock
from server.core.access.tries import MOST_BEGUN, OutOfBoundsError, bounded, failures, forget_failures, note_failure
from server.core.errors import DomainError
from server.core.reasons import NONE, Because, Reason
from server.sources.mail.postings import Posting, Version, parse_subject
from server.sources.messages.storage import FAILED_THREAD, POSTED, lock_mail
from server.sources.models import Message, Patch, Series, Thread
from server.sources.series.late_mails import (
    add_late_covers,
    check_anew,
    is_taken,
    retake_places,
    series_fields,
    with_free_root,
)
from server.sources.series.thread_rows import SeriesRow, SlowThreadError, ThreadRows
from server.sources.supersession import settle_series, supersede

COPY = Because.COPY("another copy of a mail that is here already")
TWIN = Because.TWIN()
PLACE_TAKEN = Because.PLACE_TAKEN()
UNPROVED = Because.UNPROVED("came when its series had been checked already, and its sender is not proved")
DOUBTED = Because.DOUBTED("its sender is not proved, but others of that sender are: it may be anybody's")
ROOT_TAKEN = Because.ROOT_TAKEN()
# What grouping says of a mail; what reading it said is the nearer reason.
_OWN = {told.code for told in (COPY, TWIN, PLACE_TAKEN, UNPROVED, DOUBTED, ROOT_TAKEN, Because.NOT_GROUPED())}


def explain_unused(rows: ThreadRows, used: set[int], homeless: set[int]) -> None:
    """Note it on every mail of the thread; what the reading of a mail found stays, as the nearer reason."""
    changed: dict[Reason, list[int]] = {}
    lists = {(m.message_id, m.subject, m.mailing_list_id) for pk, m in rows.messages.items() if pk not in rows.copies}
    nobodys = _nobodys(rows)
    for message in rows.messages.values():
        if message.kind not in POSTED or (message.reason and message.reason_code not in _OWN):
            continue
        reason = NONE
        if message.pk in rows.copies:
            twin = (message.message_id, message.subject, message.mailing_list_id) in lists
            reason = TWIN if twin else COPY
        elif message.pk in homeless:
            reason = ROOT_TAKEN
        elif message.pk not in used:
            reason = UNPROVED if message.pk in rows.unproved else DOUBTED if message.pk in nobodys else PLACE_TAKEN
        if reason != message.reason:
            changed.setdefault(reason, []).append(message.pk)
    for reason, keys in changed.items():
        Message.objects.filter(pk__in=keys).update(**reason.columns())


def _nobodys(rows: ThreadRows) -> set[int]:
    """Mails that are left out for want of a proof, though nothing else is for their places."""
    postings = [posting for version in rows.versions for posting in version.postings]
    filled = {(p.sender, p.number, p.total, p.index) for p in postings if not p.doubted}
    return {p.key for p in postings if p.doubted and (p.sender, p.number, p.total, p.index) not in filled}


# From threads to series: every thread that changed is grouped anew as a whole, in a transaction of its own.
#
# What comes out depends on the mails alone, not on the order in which they came nor on how often they were grouped,
# but for one rule: a series that is whole keeps its patches, whatever comes later. Only a late cover letter is still
# taken.

log = structlog.get_logger(__name__)

State = Series.State
LEFT_OUT = Because.LEFT_OUT("a mail that is not proved is left out: all others of its sender are")
_AT_A_TIME = 500
_IDENTITY = frozenset({"cover_id", "subject", "author_address", "version", "minor", "change_id", "submitted_at", "rfc"})
Matched = list[tuple[Version, SeriesRow | None]]


def write_versions(rows: ThreadRows) -> bool:
    """Bring all series of a thread up to date.

    The caller holds the lock of the mails. Costs a few queries, and some more for each series that changes. False when
    it was late before all were written: the rest is done the next time.
    """
    for released in [row.series for row in rows.series if row.released]:
        released.advance(State.INCOMPLETE, LEFT_OUT, checked_at=None)
    retaken = _retake(rows)
    open_versions = [
        v for v in rows.versions if not (rows.settled & {p.key for p in v.postings} or _is_nothing(rows, v))
    ]
    matched = _match(open_versions, [row for row in rows.series if row.open])
    _drop_unmatched(rows, matched)
    for changed in retaken:
        check_anew(rows, changed)
    closed = [row for row in rows.series if not row.open]
    late = add_late_covers(rows, closed)
    homeless: set[int] = set()
    # The older ones stand first: a partial re-roll takes over what is stored of them.
    new = 0
    for version, row in matched:
        if rows.is_late() and new:
            break
        rows.check_time()
        if not _write(rows, version, row):
            homeless |= {p.key for p in version.postings}
        new += row is None
    if rows.is_late() and new:
        return False
    used = rows.settled | late | {p.key for v, _ in matched for p in v.postings} - homeless
    for row in [row for row in rows.series if not row.open]:
        _update_trailers(rows, row)
    explain_unused(rows, used, homeless)
    return True


def _is_nothing(rows: ThreadRows, version: Version) -> bool:
    """Whether it is only what was forged, and left out, of a version of somebody's."""
    doubted = all(p.doubted and rows.messages[p.key].authentic is False for p in version.postings)
    return doubted and not version.complete


def _retake(rows: ThreadRows) -> list[SeriesRow]:
    """Let proved mails take the places of those that are not; returns the series that changed."""
    changed = retake_places(rows)
    for row, patch, mail in changed:
        patch.delete()
        row.patches[patch.index] = _patch(rows, row.series, rows.posting(mail))
    Patch.objects.bulk_create(row.patches[patch.index] for row, patch, _ in changed)
    return list({row.series.pk: row for row, *_ in changed}.values())


def _match(versions: list[Version], open_rows: list[SeriesRow]) -> Matched:
    """Each version with the open series that shares most mails with it, of the same number where there is one."""
    left = {row.series.pk: row for row in open_rows}
    members = {pk: row.mails for pk, row in left.items()}
    owner: dict[int, list[int]] = {}
    for pk, mails in members.items():
        for mail in mails:
            owner.setdefault(mail, []).append(pk)
    found: dict[int, SeriesRow | None] = {}
    # What may be anybody's does not get the series of those who proved theirs.
    for version in sorted(versions, key=lambda v: v.root.doubted):
        keys = {p.key for p in version.postings}
        near = {pk for key in keys for pk in owner.get(key, []) if pk in left}
        ranked = sorted(near, key=lambda pk: (left[pk].series.number != version.number, -len(members[pk] & keys), pk))
        found[version.root.key] = left.pop(ranked[0]) if ranked else None
    return [(version, found[version.root.key]) for version in versions]


def _drop_unmatched(rows: ThreadRows, matched: Matched) -> None:
    """An incomplete series all of whose mails turned out to belong to others never was one."""
    kept = {row.series.pk for _, row in matched if row}
    for row in rows.series:
        if row.series.state == State.INCOMPLETE and row.series.pk not in kept:
            log.info("series_merged", trace=row.series.trace, series=row.series.pk)
            row.series.delete()
    gone = [row for row in rows.series if row.series.pk is None]
    rows.series = [row for row in rows.series if row not in gone]


def _write(rows: ThreadRows, version: Version, row: SeriesRow | None) -> bool:
    """Make or update one series; False if another one begins with the same Message-ID already."""
    stored = row.series if row else None
    fields = with_free_root(series_fields(rows, version), rows.messages[version.root.key], stored)
    if is_taken(fields, stored):
        if row and row.series.state == State.INCOMPLETE:
            row.series.delete()
        return False
    reason = _reason(rows, version)
    if row is None:
        row = SeriesRow(
            Series.objects.create(state=State.INCOMPLETE, **reason.columns(), **fields).record_creation(), {}
        )
        changed = set(fields)
    else:
        if row.series.state == State.INCOMPLETE:
            fields |= reason.columns()
        changed = _update(row.series, fields)
    _write_patches(rows, version, row)
    rows.roots[version.root.key] = row
    _update_trailers(rows, row)
    if version.complete:
        _complete(version, row.series)
    elif changed & _IDENTITY:
        # What is known of it now may tell that its next version is there already.
        supersede(row.series)
    return True


def _update(series: Series, fields: Mapping[str, Any]) -> set[str]:
    """Store what differs; returns the names of the columns."""
    changed = {name: value for name, value in fields.items() if getattr(series, name) != value}
    if changed:
        Series.objects.filter(pk=series.pk, state=series.state).update(**changed)
    for name, value in changed.items():
        setattr(series, name, value)
    return set(changed)


def _write_patches(rows: ThreadRows, version: Version, row: SeriesRow) -> None:
    wanted = {posting.index: posting for posting in version.patches}
    wrong = {i: p for i, p in row.patches.items() if i not in wanted or wanted[i].key != p.message_id}
    if wrong:
        Patch.objects.filter(pk__in=[patch.pk for patch in wrong.values()]).delete()
    for index in wrong:
        del row.patches[index]
    new = {i: _patch(rows, row.series, p) for i, p in wanted.items() if i not in row.patches}
    Patch.objects.bulk_create(new.values(), batch_size=_AT_A_TIME)
    row.patches |= new


def _patch(rows: ThreadRows, series: Series, posting: Posting) -> Patch:
    message = rows.messages[posting.key]
    return Patch(
        series=series,
        index=posting.index,
        message=message,
        subject=parse_subject(message.subject).title,
        trailers=rows.followups.of_patch(message, _cover_of(rows, series, posting.key)),
    )


def _update_trailers(rows: ThreadRows, row: SeriesRow) -> None:
    """Answers bring trailers to every series, whatever became of it."""
    changed = []
    for patch in row.patches.values():
        rows.check_time()
        message = rows.messages.get(patch.message_id)
        cover = _cover_of(rows, row.series, patch.message_id)
        found = rows.followups.of_patch(message, cover) if message else patch.trailers
        if found != patch.trailers:
            patch.trailers = found
            changed.append(patch)
    Patch.objects.bulk_update(changed, ["trailers"], batch_size=_AT_A_TIME)
    ordered = [row.patches[index].trailers for index in sorted(row.patches)]
    together = rows.followups.of_series(ordered, _cover_of(rows, row.series))
    if together != row.series.trailers:
        row.series.trailers = together
        Series.objects.filter(pk=row.series.pk).update(trailers=together)


def _cover_of(rows: ThreadRows, series: Series, patch: int = 0) -> Message | None:
    """The letter whose answers count for `patch`, or for all of the series.

    Who answered the letter of an older version did not know the patches of a partial re-roll: those carried over only.
    """
    cover = rows.messages.get(series.cover_id or 0)
    if cover is None or cover.message_id == series.first_message_id:
        return cover
    older = rows.roots.get(cover.pk)
    return cover if older and patch in older.mails else None


def _reason(rows: ThreadRows, version: Version) -> Reason:
    reason = f"{len(version.patches)} of {version.total} patches"
    deleted = [p for p in (*version.postings, *version.carried) if rows.is_deleted(p.key)]
    if deleted:
        reason += f"; the archive deleted <{deleted[0].message_id}>"
    if version.complete and version.settles_at:
        reason += f"; others may follow until {version.settles_at:%Y-%m-%d %H:%M} UTC"
    return Because.INCOMPLETE(reason)


def _complete(version: Version, series: Series) -> None:
    if series.state == State.SUPERSEDED:
        # Now that all of it is known, its next version may turn out to be another one.
        supersede(series)
    elif version.settles_at is None or version.settles_at <= clock.now():
        settle_series(series)


# All mails wait while one thread is grouped. One that holds hundreds of series is done in parts.
_PART_SECONDS = 3.0
_THREAD_SECONDS = 60.0
# One that failed is tried again after this time, and after all others.
_PAUSE = timedelta(minutes=5)
# Each series of a thread that is checked has the whole thread made anew: who posts a thousand in one would have it made
# a thousand times. One that took more of the processor, which does about half of it, rests so many times as long.
_LONG_SECONDS = 0.5
_REST = 40
_REST_OF_PART = 8
_LONGEST_REST = timedelta(minutes=10)


def group_stale(limit: int | None = None, *, seconds: float = math.inf) -> int:
    """Make and update the series of all threads that changed, at most `limit`; returns how many were grouped.

    None is begun after `seconds`, nor when others hold the lock of the mails for long. Killed at any point, the next
    call does the rest. Several processes may call it at once.
    """
    done, end, threads = 0, time.monotonic() + seconds, _in_turn()
    while (limit is None or done < limit) and time.monotonic() < end:
        thread, again = next(threads, (None, False))
        if thread is None:
            break
        try:
            grouped = _group_or_explain(thread)
        except DomainError as error:
            log.warning("grouping_waits", reason=error.message)
            break
        except OutOfBoundsError:
            # Noted. The time of the whole task is up, or its memory used: it should end now, and well.
            break
        if grouped and again:
            forget_failures(f"{FAILED_THREAD}{thread}")
        done += grouped
    return done


def _in_turn() -> Iterator[tuple[int, bool]]:
    """The stale threads, and whether each failed before: these come last, and none that failed too often."""
    failed = {int(key.removeprefix(FAILED_THREAD)): found for key, found in failures(FAILED_THREAD).items()}
    now = clock.now()
    rested = [pk for pk, (times, last) in failed.items() if times < MOST_BEGUN and now - last >= _PAUSE]
    stale = Thread.objects.filter(Q(rests_until=None) | Q(rests_until__lte=now), stale=True).order_by("pk")
    for again, found in ((False, stale.exclude(pk__in=failed)), (True, stale.filter(pk__in=rested))):
        last = 0
        # Each is asked for when its turn comes: others group as well.
        while (pk := found.filter(pk__gt=last).values_list("pk", flat=True).first()) is not None:
            yield pk, again
            last = pk


def _group_or_explain(thread: int) -> bool:
    """One thread that no rule foresaw must not stop the others: its mails stay, and a person can read why."""
    try:
        with bounded(f"{FAILED_THREAD}{thread}"):
            return group_thread(thread)
    except (IntegrityError, DataError) as error:
        reason = str(error).splitlines()[0]
        log.exception("thread_not_grouped", thread=thread)
        _give_up(thread, reason)
        return True
    except DomainError as error:
        if not error.permanent:
            # The lock is not free. It says nothing about the thread.
            raise
        _note_failure(thread, error.message)
    except SlowThreadError:
        _note_failure(thread, f"its thread takes longer than {_THREAD_SECONDS:g} seconds")
    except OutOfBoundsError:
        _note_failure(thread, "its thread takes more time or memory than a worker has")
        raise
    except OperationalError as error:
        # A database that went away says nothing about the thread; one that ended a statement for its time does.
        if not isinstance(error.__cause__, psycopg.errors.QueryCanceled):
            raise
        _note_failure(thread, "a statement about its thread takes longer than any may")
    except Exception as error:
        log.exception("thread_not_grouped", thread=thread)
        _note_failure(thread, f"{type(error).__name__} in its thread")
    return False


def _note_failure(thread: int, why: str) -> None:
    """The thread stays stale, and is tried again: soon, or in a day where it failed too often."""
    known = failures(f"{FAILED_THREAD}{thread}").get(f"{FAILED_THREAD}{thread}")
    if known and clock.now() - known[1] < _PAUSE:
        # It was tried by two at once.
        return
    times = note_failure(f"{FAILED_THREAD}{thread}")
    log.warning("thread_failed", thread=thread, reason=why, times=times)
    if times >= MOST_BEGUN:
        _explain(thread, f"{why}; this is tried again in a day")


@transaction.atomic
def _give_up(thread: int, reason: str) -> None:
    """Until the next mail of the thread comes."""
    _explain(thread, reason)
    Thread.objects.filter(pk=thread).update(stale=False)


@transaction.atomic
def _explain(thread: int, reason: str) -> None:
    lock_mail()
    loose = Message.objects.filter(thread=thread, kind__in=POSTED, reason="", patches=None)
    told = Because.NOT_GROUPED(f"could not be made part of a series: {reason}")
    Message.objects.filter(pk__in=loose.values("pk")).update(**told.columns())


def group_thread(thread: int) -> bool:
    """Make and update the series of one thread; False if another process has done it, or joined it to another one."""
    with transaction.atomic():
        lock_mail()
        if not Thread.objects.filter(pk=thread, stale=True).exists():
            return False
        began, used = time.monotonic(), time.process_time()
        rows = ThreadRows.read(thread, end=began + _THREAD_SECONDS, pause=began + _PART_SECONDS)
        is_done = write_versions(rows)
        Thread.objects.filter(pk=thread).update(
            stale=not is_done, rests_until=_rest(time.process_time() - used, is_done=is_done)
        )
        return True


def _rest(took: float, *, is_done: bool) -> datetime | None:
    """Until when a thread is left alone that took so many seconds of the processor, or of which a part did."""
    if took < _LONG_SECONDS:
        return None
    return clock.now() + min(timedelta(seconds=took * (_REST if is_done else _REST_OF_PART)), _LONGEST_REST)

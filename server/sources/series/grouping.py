"""From threads to series: every thread that changed is grouped anew as a whole, in a transaction of its own.

What comes out depends on the mails alone, not on the order in which they came nor on how often they were grouped, but
for one rule: a series that is whole keeps its patches, whatever comes later. Only a late cover letter is still taken.
"""

import math
import time
from collections.abc import Iterator
from datetime import timedelta

import psycopg
import structlog
from django.db import DataError, IntegrityError, OperationalError, transaction

from server.core import clock
from server.core.errors import DomainError
from server.core.tries import MOST_BEGUN, OutOfBoundsError, bounded, failures, forget_failures, note_failure
from server.sources.messages.facts import MailFacts, read_facts
from server.sources.messages.joining import POSTED, lock_mail
from server.sources.models import Message, Thread
from server.sources.series.explaining import NOT_GROUPED
from server.sources.series.retaking import unread_claims
from server.sources.series.rows import SlowThreadError, ThreadRows
from server.sources.series.writing import write_versions

log = structlog.get_logger(__name__)


# All mails wait while one thread is grouped. One that holds hundreds of series is done in parts.
_PART_SECONDS = 3.0
_THREAD_SECONDS = 60.0
# One that failed is tried again after this time, and after all others.
_PAUSE = timedelta(minutes=5)
_KEY = "sources.group_thread "


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
            forget_failures(f"{_KEY}{thread}")
        done += grouped
    return done


def _in_turn() -> Iterator[tuple[int, bool]]:
    """The stale threads, and whether each failed before: these come last, and none that failed too often."""
    failed = {int(key.removeprefix(_KEY)): found for key, found in failures(_KEY).items()}
    now = clock.now()
    rested = [pk for pk, (times, last) in failed.items() if times < MOST_BEGUN and now - last >= _PAUSE]
    stale = Thread.objects.filter(stale=True).order_by("pk")
    for again, found in ((False, stale.exclude(pk__in=failed)), (True, stale.filter(pk__in=rested))):
        last = 0
        # Each is asked for when its turn comes: others group as well.
        while (pk := found.filter(pk__gt=last).values_list("pk", flat=True).first()) is not None:
            yield pk, again
            last = pk


def _group_or_explain(thread: int) -> bool:
    """One thread that no rule foresaw must not stop the others: its mails stay, and a person can read why."""
    try:
        with bounded(f"{_KEY}{thread}"):
            return group_thread(thread)
    except (IntegrityError, DataError) as error:
        reason = f"{NOT_GROUPED}{str(error).splitlines()[0]}"
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
    times = note_failure(f"{_KEY}{thread}")
    log.warning("thread_failed", thread=thread, reason=why, times=times)
    if times >= MOST_BEGUN:
        _explain(thread, f"{NOT_GROUPED}{why}; this is tried again in a day")


@transaction.atomic
def _give_up(thread: int, reason: str) -> None:
    """Until the next mail of the thread comes."""
    _explain(thread, reason)
    Thread.objects.filter(pk=thread).update(stale=False)


@transaction.atomic
def _explain(thread: int, reason: str) -> None:
    lock_mail()
    loose = Message.objects.filter(thread=thread, kind__in=POSTED, reason="", patches=None)
    Message.objects.filter(pk__in=loose.values("pk")).update(reason=reason)


def group_thread(thread: int) -> bool:
    """Make and update the series of one thread; False if another process has done it, or joined it to another one.

    Mails are read before the lock is taken. Should others have come meanwhile, they are read, and all begins anew.
    """
    facts: dict[int, MailFacts] = {}
    while True:
        with transaction.atomic():
            lock_mail()
            if not Thread.objects.filter(pk=thread, stale=True).exists():
                return False
            began = time.monotonic()
            rows = ThreadRows.read(thread, end=began + _THREAD_SECONDS, pause=began + _PART_SECONDS)
            unread = (rows.unread() | set(unread_claims(rows))) - facts.keys()
            if not unread:
                if write_versions(rows, facts):
                    Thread.objects.filter(pk=thread).update(stale=False)
                return True
        facts |= read_facts(unread)

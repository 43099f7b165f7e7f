"""From threads to series: every thread that changed is grouped anew as a whole, in a transaction of its own.

What comes out depends on the mails alone, not on the order in which they came nor on how often they were grouped, but
for one rule: a series that is whole keeps its patches, whatever comes later. Only a late cover letter is still taken.
"""

import structlog
from django.db import DataError, IntegrityError, transaction

from server.sources.messages.facts import MailFacts, read_facts
from server.sources.messages.joining import POSTED, lock_mail
from server.sources.models import Message, Thread
from server.sources.series.explaining import NOT_GROUPED
from server.sources.series.retaking import unread_claims
from server.sources.series.rows import ThreadRows
from server.sources.series.writing import write_versions

log = structlog.get_logger(__name__)


def group_stale(limit: int | None = None) -> int:
    """Make and update the series of all threads that changed, at most `limit`; returns how many were grouped.

    Killed at any point, the next call does the rest. Several processes may call it at once.
    """
    done, last = 0, 0
    while limit is None or done < limit:
        stale = Thread.objects.filter(stale=True, pk__gt=last).order_by("pk").values_list("pk", flat=True).first()
        if stale is None:
            break
        last = stale
        done += _group_or_explain(stale)
    return done


def _group_or_explain(thread: int) -> bool:
    """One thread that no rule foresaw must not stop the others: its mails stay, and a person can read why."""
    try:
        return group_thread(thread)
    except (IntegrityError, DataError) as error:
        reason = f"{NOT_GROUPED}{str(error).splitlines()[0]}"
        log.exception("thread_not_grouped", thread=thread)
        _give_up(thread, reason)
        return True


@transaction.atomic
def _give_up(thread: int, reason: str) -> None:
    """Until the next mail of the thread comes."""
    lock_mail()
    loose = Message.objects.filter(thread=thread, kind__in=POSTED, reason="", patches=None)
    Message.objects.filter(pk__in=loose.values("pk")).update(reason=reason)
    Thread.objects.filter(pk=thread).update(stale=False)


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
            rows = ThreadRows.read(thread)
            unread = (rows.unread() | set(unread_claims(rows))) - facts.keys()
            if not unread:
                write_versions(rows, facts)
                Thread.objects.filter(pk=thread).update(stale=False)
                return True
        facts |= read_facts(unread)

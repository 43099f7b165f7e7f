"""Counting what goes wrong, so that nobody may try without end: wrong passwords and tokens, tasks that end workers.

The counts are rows: they hold when Redis was emptied or is away, and for all web processes together. A window begins
with the first try and ends after its time whatever comes meanwhile, so nobody can keep anybody out for good.
"""

import hashlib
import ipaddress
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import structlog
from celery.exceptions import SoftTimeLimitExceeded
from django.conf import settings
from django.db import connection
from django.db.models import Count, Max, Q, QuerySet
from django.http import HttpRequest

from server.core import clock
from server.core.database import locks_noted
from server.core.models import Begun, Tries
from server.core.rows.together import Row

log = structlog.get_logger(__name__)

# A task that began so often and came to no end, for its process was killed or had no more memory or time, is given up.
MOST_BEGUN = 3
# For so long; then it is tried again.
GIVEN_UP = timedelta(days=1)
_LONGEST_KEY = 200
# A process that is still at it ends by then.
_LONGEST = timedelta(seconds=settings.CELERY_TASK_TIME_LIMIT + 30)

WINDOW = timedelta(minutes=15)
# A larger count says no more.
_ENOUGH = 1_000_000
_COUNT_ONE = """
    INSERT INTO core_tries AS t (key, count, since) VALUES (%(key)s, 1, %(now)s)
    ON CONFLICT (key) DO UPDATE SET
        count = CASE WHEN t.since < %(begin)s THEN 1 ELSE LEAST(t.count + 1, %(enough)s) END,
        since = CASE WHEN t.since < %(begin)s THEN excluded.since ELSE t.since END
    RETURNING count
"""


def count_try(key: str) -> int:
    """Note one more try; returns how many there were in this window, this one among them. Safe beside others."""
    now = clock.now()
    with connection.cursor() as cursor:
        cursor.execute(_COUNT_ONE, {"key": key, "now": now, "begin": now - WINDOW, "enough": _ENOUGH})
        return int(cursor.fetchone()[0])


def forget_tries(*keys: str) -> int:
    """Begin anew for these; returns how many had been counted."""
    return Tries.objects.filter(key__in=keys).delete()[0]


def forget_old_tries() -> int:
    """Remove windows that are over, which count for nothing; returns how many."""
    return Tries.objects.filter(since__lt=clock.now() - WINDOW).delete()[0]


@dataclass(frozen=True)
class GivenUp:
    """A task that nobody begins any more until then."""

    task: str
    times: int
    until: datetime


class OutOfBoundsError(Exception):
    """Memory or time of a worker's process was not enough for a task."""


@contextmanager
def bounded(key: str) -> Iterator[None]:
    """MemoryError would end the whole worker: it becomes OutOfBoundsError, as the end of a task's time does."""
    try:
        yield
    except (MemoryError, SoftTimeLimitExceeded) as error:
        # Most of it is free again by now: the stack is unwound.
        raise OutOfBoundsError(f"{key}: {type(error).__name__}") from error


@contextmanager
def counted(key: str, *, alone: bool = False) -> Iterator[bool]:
    """Whether the task may begin: not once it has taken MOST_BEGUN processes with it in a row, of late.

    `alone`: whoever is in here holds a lock for `key`; else one that began within a task's time may still be at it.
    An error is an end as well, but for one that says that memory or time were not enough.
    """
    now = clock.now()
    earlier = Begun.objects.filter(
        key=key[:_LONGEST_KEY], at__gte=now - GIVEN_UP, at__lte=now if alone else now - _LONGEST
    )
    if (times := earlier.count()) >= MOST_BEGUN:
        if earlier.filter(given_up=False).update(given_up=True):
            log.error("task_given_up", task=key, times=times, again_at=(now + GIVEN_UP).isoformat())
        yield False
        return
    row = Begun.objects.create(key=key[:_LONGEST_KEY])
    try:
        with locks_noted() as locks, bounded(key):
            yield True
    except OutOfBoundsError:
        raise
    except BaseException:
        row.delete()
        raise
    ended = Q(pk=row.pk)
    if alone or (locks and all(locks)):
        # It held what others would have: whoever began before it and is not done is no more.
        ended |= Q(key=row.key, pk__lt=row.pk, at__gte=now - GIVEN_UP)
    elif times and not _another_is_at_it(row, now):
        ended |= Q(pk__in=earlier)
    Begun.objects.filter(ended).delete()


def _another_is_at_it(row: Begun, now: datetime) -> bool:
    """Who finds the work in another's hands ends well and has done nothing, which says nothing about the work."""
    return Begun.objects.filter(key=row.key, at__gte=now - _LONGEST).exclude(pk=row.pk).exists()


def note_failure(key: str) -> int:
    """Something began by itself, outside of a task of its own, and came to no end; returns how often of late.

    With the last of MOST_BEGUN it is given up as a task is.
    """
    now = clock.now()
    Begun.objects.create(key=key[:_LONGEST_KEY])
    rows = Begun.objects.filter(key=key[:_LONGEST_KEY], at__gte=now - GIVEN_UP)
    if (times := rows.count()) >= MOST_BEGUN and rows.filter(given_up=False).update(given_up=True):
        log.error("task_given_up", task=key, times=times)
    return times


def failures(prefix: str) -> dict[str, tuple[int, datetime]]:
    """What begins with `prefix` and came to no end of late, by its key: how often, and when for the last time."""
    rows = Begun.objects.filter(key__startswith=prefix, at__gte=clock.now() - GIVEN_UP).order_by().values_list("key")
    return {key: (times, last) for key, times, last in rows.annotate(Count("pk"), Max("at"))}


def forget_failures(key: str) -> None:
    """It came to an end."""
    Begun.objects.filter(key=key[:_LONGEST_KEY]).delete()


def given_up() -> list[GivenUp]:
    """The tasks that are given up now, the latest first."""
    return given_up_rows(asked_of_given_up())


def asked_of_given_up() -> "QuerySet[Any, Any]":
    """For `given_up_rows`."""
    rows = Begun.objects.filter(given_up=True, at__gte=clock.now() - GIVEN_UP).order_by().values_list("key")
    return rows.annotate(Count("pk"), last=Max("at")).order_by("-last")


def given_up_rows(told: Iterable[Row]) -> list[GivenUp]:
    return [GivenUp(key, times, last + GIVEN_UP) for key, times, last in told]


def forget_begun() -> int:
    """Remove what counts for nothing any more; returns how many rows."""
    return Begun.objects.filter(at__lt=clock.now() - GIVEN_UP).delete()[0]


def digest(name: str) -> str:
    """Short enough for a key, whatever somebody typed."""
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:40]


def client_network(request: HttpRequest) -> str:
    """Whose address a request comes from: an IPv4 address, or the /64 that one IPv6 host may choose from."""
    return network_behind(request.META.get("REMOTE_ADDR", ""), request.headers.get("X-Forwarded-For", ""))


def network_behind(nearest: str, forwarded: str) -> str:
    """The same for a connection of the address `nearest`, which says that it asks for others.

    What a proxy says counts only if the proxy is the site's own (settings.TRUSTED_PROXIES): X-Forwarded-For is read
    from its end, where the nearest proxy wrote, up to the first address that is none of ours.
    """
    found = _address(nearest)
    while forwarded and _is_ours(found):
        forwarded, _, last = forwarded.rpartition(",")
        if last.strip():
            said = _address(last.strip())
            if said is None:
                break
            found = said
    return _network(found)


def network_of(address: str) -> str:
    """The same for an address that somebody names."""
    return _network(_address(address))


def _network(address: ipaddress.IPv4Address | ipaddress.IPv6Address | None) -> str:
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, 64), strict=False))
    return "unknown" if address is None else str(address)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _is_ours(address: ipaddress.IPv4Address | ipaddress.IPv6Address | None) -> bool:
    """Whether a proxy of the site has this address; over a Unix socket, which has none, nobody else comes."""
    if address is None:
        return True
    return any(address in network for network in settings.TRUSTED_PROXIES)

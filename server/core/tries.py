"""Counting what goes wrong: wrong passwords and wrong tokens, so that nobody may try without end.

The counts are rows: they hold when Redis was emptied or is away, and for all web processes together. A window begins
with the first try and ends after its time whatever comes meanwhile, so nobody can keep anybody out for good.
"""

import hashlib
import ipaddress
from datetime import timedelta

from django.conf import settings
from django.db import connection
from django.http import HttpRequest

from server.core import clock
from server.core.models import Tries

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


def digest(name: str) -> str:
    """Short enough for a key, whatever somebody typed."""
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:40]


def client_network(request: HttpRequest) -> str:
    """Whose address a request comes from: an IPv4 address, or the /64 that one IPv6 host may choose from.

    What a proxy says counts only if the proxy is the site's own (settings.TRUSTED_PROXIES): X-Forwarded-For is read
    from its end, where the nearest proxy wrote, up to the first address that is none of ours.
    """
    found = _address(request.META.get("REMOTE_ADDR", ""))
    said = [_address(part.strip()) for part in request.headers.get("X-Forwarded-For", "").split(",") if part.strip()]
    while said and _is_ours(found) and said[-1] is not None:
        found = said.pop()
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

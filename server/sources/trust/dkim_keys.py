"""Looking up public keys of mail domains: the port to DNS."""

import time
from collections.abc import Callable
from functools import cache

import dns.exception
import dns.name
import dns.nameserver
import dns.resolver
from django.conf import settings

# The text record of a name such as selector._domainkey.example.org, or None if there is none.
Lookup = Callable[[str], bytes | None]

_SECONDS = 5.0
# An RSA key of 4096 bits takes 750. A longer one only costs time to whoever uses it.
_MOST_BYTES = 1500
_DNS_PORT = 53
# Between the selector and the domain that has signed.
_KEYS = "._domainkey."


# A domain without an answer is not asked again for so long, by this process: less than any pause before the next try.
_SILENT_SECONDS = 50.0
_MOST_SILENT = 1000
_silent: dict[str, float] = {}


class DnsTroubleError(Exception):
    """The name servers gave no answer; a later question may have one."""


def look_up_key(name: str) -> bytes | None:
    """Ask the site's name servers. DnsTroubleError when none answers within five seconds, or none did just now.

    Anybody may write in the name of a domain whose servers are gone, as often as he likes.
    """
    domain = name.partition(_KEYS)[2]
    if time.monotonic() < _silent.get(domain, 0.0):
        raise DnsTroubleError(f"no answer from the name servers for {name}")
    try:
        answer = _resolver().resolve(name, "TXT", lifetime=_SECONDS, search=False)
    except (dns.resolver.NXDOMAIN, dns.resolver.NoAnswer, dns.resolver.YXDOMAIN):
        return None
    except (dns.exception.Timeout, dns.resolver.NoNameservers, dns.resolver.NoResolverConfiguration, OSError) as error:
        _silent.pop(domain, None)
        if len(_silent) >= _MOST_SILENT:
            del _silent[next(iter(_silent))]
        _silent[domain] = time.monotonic() + _SILENT_SECONDS
        raise DnsTroubleError(f"no answer from the name servers for {name}") from error
    except dns.exception.DNSException:
        # A name that cannot be asked for, such as one with an empty label.
        return None
    records = sorted(b"".join(row.strings) for row in answer)
    return next((record for record in records if b"p=" in record and len(record) <= _MOST_BYTES), None)


def remembering(lookup: Lookup, *, seconds: float = 100.0) -> Lookup:
    """The same, asking for each name once, and for `seconds` in all; where one has no answer, its domain is not asked
    again either.

    Whoever signs chooses the names, any number of them, and may have servers that answer late or never.
    """
    silent: dict[str, DnsTroubleError] = {}
    left = seconds

    @cache
    def ask(name: str) -> bytes | DnsTroubleError | None:
        nonlocal left
        domain = name.partition(_KEYS)[2]
        if domain in silent:
            return silent[domain]
        if left <= 0:
            return DnsTroubleError(f"its name servers took more than {seconds:.0f} s in all")
        began = time.monotonic()
        try:
            return lookup(name)
        except DnsTroubleError as error:
            silent[domain] = error
            return error
        finally:
            left -= time.monotonic() - began

    def answer(name: str) -> bytes | None:
        found = ask(name)
        if isinstance(found, DnsTroubleError):
            raise found
        return found

    return answer


def _resolver() -> dns.resolver.Resolver:
    """With the servers that TIDEMARK_DNS_SERVERS names, else those of this host."""
    if not settings.DNS_SERVERS:
        return dns.resolver.Resolver()
    resolver = dns.resolver.Resolver(configure=False)
    resolver.nameservers = [_server(text) for text in settings.DNS_SERVERS]
    return resolver


def _server(text: str) -> dns.nameserver.Nameserver:
    """`ADDRESS`, or `IPV4:PORT`."""
    address, colon, port = text.rpartition(":")
    if colon and ":" not in address:
        return dns.nameserver.Do53Nameserver(address, int(port))
    return dns.nameserver.Do53Nameserver(text, _DNS_PORT)

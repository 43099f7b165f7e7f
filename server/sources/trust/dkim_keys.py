"""Looking up public keys of mail domains: the port to DNS."""

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


class DnsTroubleError(Exception):
    """The name servers gave no answer; a later question may have one."""


def look_up_key(name: str) -> bytes | None:
    """Ask the site's name servers. DnsTroubleError when none answers within five seconds."""
    try:
        answer = _resolver().resolve(name, "TXT", lifetime=_SECONDS, search=False)
    except (dns.resolver.NXDOMAIN, dns.resolver.NoAnswer, dns.resolver.YXDOMAIN):
        return None
    except (dns.exception.Timeout, dns.resolver.NoNameservers, dns.resolver.NoResolverConfiguration, OSError) as error:
        raise DnsTroubleError(f"no answer from the name servers for {name}") from error
    except dns.exception.DNSException:
        # A name that cannot be asked for, such as one with an empty label.
        return None
    records = sorted(b"".join(row.strings) for row in answer)
    return next((record for record in records if b"p=" in record and len(record) <= _MOST_BYTES), None)


def remembering(lookup: Lookup) -> Lookup:
    """The same, asking for each name once; where one has no answer, its domain is not asked again either.

    Whoever signs chooses the names, any number of them, and may have servers that never answer.
    """
    silent: dict[str, DnsTroubleError] = {}

    @cache
    def ask(name: str) -> bytes | DnsTroubleError | None:
        domain = name.partition(_KEYS)[2]
        if domain in silent:
            return silent[domain]
        try:
            return lookup(name)
        except DnsTroubleError as error:
            silent[domain] = error
            return error

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

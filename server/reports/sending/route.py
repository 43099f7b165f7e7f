"""Which mail server takes a mail: the site's own, or the sink that what is virtual never passes."""

import ipaddress
import socket
from dataclasses import dataclass
from typing import Any

from django.conf import settings

from server.core.errors import DomainError

_PRIVATE = tuple(ipaddress.ip_network(n) for n in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"))


@dataclass(frozen=True)
class Route:
    """A mail server. `options` are for the mail backend; without any it takes the site's settings."""

    name: str
    options: dict[str, Any]


def route(*, virtual: bool, look_up: bool = True) -> Route:
    """Raises DomainError: `virtual-stays` when virtual results have no sink to go to, temporary `sink-unknown`.

    Without `look_up` a sink that has a name passes: nobody may send by that.
    """
    if not virtual:
        return Route(f"{settings.EMAIL_HOST}:{settings.EMAIL_PORT}", {})
    if not settings.MAIL_SINK:
        raise DomainError("virtual-stays", "virtual results never leave the site, and no mail sink is set")
    host, _, port = settings.MAIL_SINK.rpartition(":")
    unasked = not look_up and not _is_address(host)
    if not (host and port.isdigit() and (unasked or _stays_inside(host))):
        raise DomainError(
            "virtual-stays",
            "virtual results never leave the site: the sink must be HOST:PORT on loopback or in a private network",
        )
    options = {"host": host.strip("[]"), "port": int(port), "username": "", "password": "", "use_tls": False}
    return Route(settings.MAIL_SINK, options)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def _stays_inside(host: str) -> bool:
    """Whether every address of `host` is loopback or of a private network, as in compose."""
    try:
        found = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
    except OSError as error:
        # A name service that is away for a moment says nothing about where the sink is.
        raise DomainError("sink-unknown", f"{host} cannot be looked up: {error}", permanent=False) from error
    addresses = [ipaddress.ip_address(entry[4][0]) for entry in found]
    return all(
        address.is_loopback or any(address in network for network in _PRIVATE if network.version == address.version)
        for address in addresses
    )

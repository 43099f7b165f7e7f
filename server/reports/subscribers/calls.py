"""Calls to other systems: committed first, signed, tried again, and never sent where they must not go.

The owner of a webhook names any address he likes. What an address stands for is looked up once, refused where it lies
inside the site's own networks, and the connection is made to what was looked up.
"""

import base64
import hashlib
import hmac
import ipaddress
import json
import socket
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import httpx2
import structlog
from django.conf import settings
from django.db.models import Q, QuerySet

from server.core import clock
from server.core.errors import DomainError
from server.core.reasons import Because
from server.core.watchdog import Watchdog
from server.reports.models import CallState, HookCall, Subscription
from server.reports.stop_switch import current_stop
from server.reports.subscribers.subscription import end_subscription, hook_key

log = structlog.get_logger(__name__)

_SECONDS = 15.0
# Longer than the time limit of the task that sends.
_STUCK_AFTER = timedelta(minutes=2)
_FIRST_WAIT = timedelta(minutes=1)
_LONGEST_WAIT = timedelta(hours=6)
_MOST_TRIES = 12
_MOST_AT_ONCE = 100
_LARGEST_ANSWER = 256 * 1024
_GOOD, _GONE = range(200, 300), 410
_BEHIND_GATEWAY = ipaddress.ip_network("64:ff9b::/96")


@dataclass(frozen=True)
class CallRequest:
    """One request. `pinned` is the only address that is connected to; None leaves it to the operator's own name."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    pinned: str | None = None


def send_call(*, call_id: int) -> bool:
    """Send one queued call; True when it was accepted. Does nothing in any other state."""
    due = Q(not_before=None) | Q(not_before__lte=clock.now())
    rows = HookCall.objects.select_related("subscription__user", "finding")
    call = rows.filter(due, pk=call_id, state=CallState.QUEUED).first()
    if call is None or current_stop() is not None:
        return False
    if why := _unwanted(call):
        call.advance(CallState.FAILED, Because.NOT_WANTED(why))
        return False
    return call.advance(CallState.SENDING, tries=call.tries + 1) and _is_taken(call)


def _is_taken(call: HookCall) -> bool:
    """Send it, and write down what was answered."""
    status: int | None = None
    try:
        status = _SENDERS[HookCall.Target(call.target)](call)
        if status in _GOOD:
            return call.advance(CallState.SENT, status=status)
        gone = status == _GONE and call.subscription is not None
        told = "it is gone: the subscription has ended" if gone else f"it answered {status}"
        raise DomainError("not-accepted", told, permanent=gone)
    except DomainError as error:
        if status == _GONE and call.subscription is not None:
            end_subscription(call.subscription)
        _put_off(call, error, status=status)
    return False


def calls_to_send() -> list[int]:
    """Due calls, for one sweep; those whose sender was lost are queued again first."""
    lost = HookCall.objects.filter(state=CallState.SENDING, state_since__lt=clock.now() - _STUCK_AFTER)
    for call in lost.order_by("state_since")[:_MOST_AT_ONCE]:
        _put_off(call, DomainError("sender-lost", "its sender was lost", permanent=False))
    waiting: QuerySet[HookCall] = HookCall.objects.filter(state=CallState.QUEUED)
    due = waiting.filter(Q(not_before=None) | Q(not_before__lte=clock.now()))
    return list(due.order_by("not_before", "pk").values_list("pk", flat=True)[:_MOST_AT_ONCE])


def _unwanted(call: HookCall) -> str:
    subscription = call.subscription
    if subscription is None:
        return "" if configured(call.target) else f"{call.target} is not configured any more"
    if subscription.ended_at is not None or not subscription.user.is_active:
        return "its subscription has ended"
    return ""


def configured(target: str) -> bool:
    """Whether the site is connected with that system."""
    return bool({"patchwork": settings.PATCHWORK_URL, "kcidb": settings.KCIDB_URL}.get(target, ""))


def _put_off(call: HookCall, error: DomainError, **fields: Any) -> None:
    if error.permanent or call.tries >= _MOST_TRIES:
        call.advance(CallState.FAILED, Because.NOT_SENT(error.message), **fields)
        return
    wait = min(_FIRST_WAIT * 2 ** max(0, call.tries - 1), _LONGEST_WAIT)
    call.advance(CallState.QUEUED, Because.NOT_SENT(error.message), not_before=clock.now() + wait, **fields)


def _to_webhook(call: HookCall) -> int:
    """As https://www.standardwebhooks.com signs: HMAC-SHA256 over id, time and body, in base64."""
    subscription = call.subscription
    assert subscription is not None
    body = _bytes_of(call.document)
    name, moment = f"tidemark_{call.pk}", str(int(clock.now().timestamp()))
    headers = {
        "webhook-id": name,
        "webhook-timestamp": moment,
        "webhook-signature": signature(subscription, name, moment, body),
    }
    return _status(CallRequest("POST", subscription.url, headers, body, pinned=allowed_address(subscription.url)))


def signature(subscription: Subscription, name: str, moment: str, body: bytes) -> str:
    digest = hmac.digest(hook_key(subscription), b".".join([name.encode(), moment.encode(), body]), hashlib.sha256)
    return f"v1,{base64.b64encode(digest).decode()}"


def _to_patchwork(call: HookCall) -> int:
    """A check stands at a patch, which Patchwork knows by its Message-ID."""
    base, headers = settings.PATCHWORK_URL.rstrip("/"), {"Authorization": f"Token {settings.PATCHWORK_TOKEN}"}
    message_id = call.document["message_id"]
    found, answer = _answer(CallRequest("GET", f"{base}/api/patches/?msgid={quote(message_id, safe='')}", headers))
    if found not in _GOOD:
        return found
    try:
        patch = int(json.loads(answer)[0]["id"])
    except (ValueError, LookupError, TypeError) as error:
        raise DomainError("not-found", f"Patchwork has no patch <{message_id}>", permanent=False) from error
    check = _bytes_of(call.document["check"])
    return _status(CallRequest("POST", f"{base}/api/patches/{patch}/checks/", headers, check))


def _to_kcidb(call: HookCall) -> int:
    headers = {"Authorization": f"Bearer {settings.KCIDB_TOKEN}"}
    return _status(CallRequest("POST", settings.KCIDB_URL, headers, _bytes_of(call.document)))


_SENDERS = {
    HookCall.Target.WEBHOOK: _to_webhook,
    HookCall.Target.PATCHWORK: _to_patchwork,
    HookCall.Target.KCIDB: _to_kcidb,
}


def _bytes_of(document: Any) -> bytes:
    """The same at each try."""
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def allowed_address(url: str) -> str:
    """The address that the host of `url` stands for. DomainError `private-address`, or temporary `unknown-host`."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise DomainError("unknown-host", "its host cannot be looked up", permanent=False) from error
    addresses = [str(entry[4][0]).partition("%")[0] for entry in found]
    # All of them: a name that stands for two may be asked again until the other one comes.
    if not addresses or not all(_is_allowed(address) for address in addresses):
        raise DomainError("private-address", "it lies in a private network that TIDEMARK_HOOK_NETWORKS does not allow")
    return addresses[0]


def _is_allowed(text: str) -> bool:
    address = ipaddress.ip_address(text)
    inner = _unwrapped(address)
    if any(inner in network for network in settings.HOOK_NETWORKS if network.version == inner.version):
        return True
    return inner.is_global and not inner.is_multicast and not getattr(inner, "is_site_local", False)


def _unwrapped(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The address of the older kind that one of the newer stands for: mapped, or behind a gateway (RFC 3056, 6052)."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _BEHIND_GATEWAY:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


def _status(request: CallRequest) -> int:
    return _answer(request)[0]


def _answer(request: CallRequest) -> tuple[int, bytes]:
    """Status and the beginning of what was answered, within a fixed time; no redirect is followed."""
    headers = {"User-Agent": "Tidemark", "Accept-Encoding": "identity", **request.headers}
    if request.body:
        headers["Content-Type"] = "application/json"
    url, extensions = request.url, dict[str, Any]()
    if request.pinned is not None:
        parts = urlsplit(request.url)
        headers["Host"] = parts.netloc.rpartition("@")[2]
        extensions["sni_hostname"] = parts.hostname
        url = urlunsplit((parts.scheme, _at(request.pinned, parts.port), parts.path or "/", parts.query, ""))
    watchdog = Watchdog(_SECONDS)
    trouble = ""
    # Raised outside of `except`: the library's errors hold the request with its headers.
    with closing(httpx2.Client(trust_env=False, follow_redirects=False, timeout=_SECONDS)) as client:
        try:
            with watchdog.on_guard():
                made = client.build_request(request.method, url, headers=headers, content=request.body or None)
                made.extensions |= {**extensions, "trace": watchdog}
                response = client.send(made, stream=True)
                with closing(response):
                    return response.status_code, _beginning(response)
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError, ValueError) as error:
            trouble = watchdog.words() or type(error).__name__
        finally:
            watchdog.forget()
    raise DomainError("not-reached", f"it could not be reached: {trouble}", permanent=False)


def _beginning(response: httpx2.Response) -> bytes:
    content = bytearray()
    for part in response.iter_raw():
        content += part
        if len(content) > _LARGEST_ANSWER:
            break
    return bytes(content[:_LARGEST_ANSWER])


def _at(address: str, port: int | None) -> str:
    host = f"[{address}]" if ":" in address else address
    return f"{host}:{port}" if port else host
